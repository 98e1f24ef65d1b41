/* model_specs.h - gives the text of the shipped model specs: the files of models/specs, one after another.
 *
 * Layer: base/perf (base/core); cmake/embed.cmake makes the source file
 */
#pragma once
#include "base/core/str.h"

struct str model_specs_text(void); /* each spec ends with a line `---` */
