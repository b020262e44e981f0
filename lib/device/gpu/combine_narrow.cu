#include "lib/device/gpu/combine_narrow.h"
