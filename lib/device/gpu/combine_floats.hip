#include "lib/device/gpu/combine_floats.h"
