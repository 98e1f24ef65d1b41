/* byte_alphabet.h - GPT-2's way to write any bytes as printable text.
 *
 * Layer: base/text. Pure.
 *
 * Vocabulary files hold tokens as text in which each byte is one character: the 188 printable
 * bytes of Latin-1 are themselves, the other 68 are U+0100 + n in the order of their values. A
 * space so becomes U+0120.
 */
#pragma once
#include "base/core/str.h"

/* True when all of `text` is written in the alphabet; its bytes are in `out` (room for
 * text.len). */
bool byte_alphabet_decode(struct str text, char *out, uint32_t *ret_len);

/* `bytes` in the alphabet, written to `out` (room for 2 * bytes.len). */
struct str byte_alphabet_encode(struct str bytes, char *out);
