#include "lib/device/gpu/combine_other.h"
