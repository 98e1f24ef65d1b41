/* calendar.h - strftime of a UTC moment, in English, without a clock or a locale.
 *
 * Layer: base/text/jinja, private to the chat template. Pure.
 */
#pragma once
#include "base/text/jinja/build.h"

/* Puts `form` with its % directives replaced, as Python does for a time without zone (%Z and %z
 * are empty); %- before a number takes its leading zero away. An unknown directive stays as it
 * is. */
void jinja_put_time(struct jinja_builder *b, struct str form, int64_t now_s);
