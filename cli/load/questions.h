/* questions.h - the list of questions, compiled in (cmake/embed.cmake). */
#pragma once
#include "base/core/str.h"

#define QUESTIONS_MAX 1024

struct str questions_text(void); /* lines: kind, tab, question */
