/* The daemon of the next release, as far as formats go: it knows one level more. */
#include "core/command.h"

const uint16_t fl_format_level = 2;
