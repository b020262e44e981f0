#include "lib/device/gpu/launch_combine.h"
