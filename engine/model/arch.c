/* arch.c - the architectures that this engine computes. */
#include "engine/model/arch.h"

const struct model_arch *const arch_table[] = { &arch_llama, NULL };
