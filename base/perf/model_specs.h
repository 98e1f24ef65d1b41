/* model_specs.h - the text of the shipped model specs: those of models/specs, one after another.
 *
 * Layer: policies (base/core)
 */
#pragma once
#include "base/core/str.h"

struct str model_specs_text(void); /* each spec ends with a line `---` */
