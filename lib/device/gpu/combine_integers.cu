#include "lib/device/gpu/combine_integers.h"
