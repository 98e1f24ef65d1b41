/* usage.c - names of how a request ended. */
#include "base/wire/usage.h"

const char *const finish_names[FINISH_COUNT] = { "none", "stop", "length", "abort", "error" };
