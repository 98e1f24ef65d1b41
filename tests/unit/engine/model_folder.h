/* model_folder.h - a folder for the model files of one test program, and a small random Llama in it.
 *
 * Failures end the program: the folder is the ground that the tests stand on.
 */
#pragma once
#include "engine/files/gguf.h"

extern char model_folder[]; /* its path, from model_folder_make on */

/* Set-up and teardown of a group of tests; the latter removes whatever files are there. */
int model_folder_make(void **state);
int model_folder_remove(void **state);

/* Returns the path of a file in it; valid for the next three calls. */
const char *folder_at(const char *name);

/* Writes a Llama of two layers, 64 wide, with 40 tokens, as GGUF. */
void folder_llama(const char *name, enum weight_type_id type, bool tied, uint64_t seed);

/* Opens and parses a GGUF file of the folder. */
struct gguf *folder_open(const char *name, struct gguf_file *file);
