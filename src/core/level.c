/* In a file of its own, so that a program can be linked with another value: tests of upgrades. */
#include "core/command.h"

const uint16_t fl_format_level = 1;
