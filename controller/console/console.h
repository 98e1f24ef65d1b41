/* console.h - the console: one page, compiled in.
 *
 * Layer: controller/console
 */
#pragma once
#include "base/core/str.h"

struct str console_page(void); /* HTML; lives as long as the program */
