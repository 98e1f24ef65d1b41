/* weight_file.h - keeps packed weights in a file that every engine of the machine maps.
 *
 * Layer:    engine/model (base/core)
 * Threads:  a weight_file belongs to one thread until it is sealed, then its memory may be read by any.
 *           Processes that want the same weights at once wait for the one that packs them (flock)
 * Files:    FOLDER/DIGEST.weights, a page of header and the weights as they lie in memory, read-only and never
 *           written again; DIGEST.part while it is made; IDENTITY.source, the digest of the files that have
 *           this identity (gguf_source), so that a start need not read them; lock
 * Trust:    files of other users, or that others may write, are not read. What is mapped was compared with its
 *           checksum; what is damaged or of another layout is removed and packed anew
 * Bound:    all *.weights together have at most bytes_max: those that were opened longest ago go first. A process
 *           that maps one keeps it until it ends
 */
#pragma once
#include "base/core/err.h"
#include "base/core/hash.h"
#include "base/core/own.h"

/* Counts the layouts that weight_pack and the loader have had: with any change of one, this is raised, so that
 * older files are packed anew (t_weight_file has the packed bytes of every type). */
#define WEIGHT_FILE_LAYOUT 2

#define WEIGHT_FILE_SOURCES_MAX 256 /* *.source files; the oldest goes */

struct weight_file;

struct weight_file_ask {
    const char *folder; /* made if only its last part is missing */
    uint64_t bytes_max;
    const char *digest; /* of the model's files: SHA256_HEX digits */
    size_t bytes;       /* of the packed weights; at least 1 */
};

/* Maps the sealed weights, or begins the file that they are written to. A negative errno with a sentence: the
 * folder cannot be used, or has no room, or another process has packed for WEIGHT_FILE_WAIT_S; the caller goes
 * without. */
#define WEIGHT_FILE_WAIT_S 600
int weight_file_open(const struct weight_file_ask *ask, struct weight_file **ret, struct err *err);

bool weight_file_is_sealed(const struct weight_file *p);

/* Returns the weights' memory, `bytes` of it, aligned to a page; what was not written yet is zero. */
const char *weight_file_memory(const struct weight_file *p);

/* Writes to a file that is not sealed. */
int weight_file_write(struct weight_file *p, size_t at, const void *data, size_t len,
                      struct err *err);

/* Seals what was written: from here on others find it. `order` says what was written where; a file that has
 * another one is not what the loader would write today. */
int weight_file_seal(struct weight_file *p, uint64_t order, struct err *err);
uint64_t weight_file_order(const struct weight_file *p); /* of a sealed file */

/* Tells the system whether the memory of a sealed file will be read soon; if not, it leaves this process. */
void weight_file_expect(struct weight_file *p, bool read);

void weight_file_remove(struct weight_file *p); /* from the folder; the memory stays */
void weight_file_close(struct weight_file *p);  /* with the memory; an unsealed one is removed */

/* Tell and keep the digest of files with this identity. Telling returns false if it is not known. */
bool weight_digest_tell(const char *folder, uint64_t identity, char ret[SHA256_HEX + 1]);
void weight_digest_keep(const char *folder, uint64_t identity, const char *digest);
