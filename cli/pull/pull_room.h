/* pull_room.h - keeps the folder of pulled models below its bound, and the disk from being full.
 *
 * Layer: cli (base/io, the sections of the configuration)
 * Items: what lies at the top of the folder, each with all files below it; names that begin with a dot count and are
 *        no models. A pull that is under way counts with what it will need, which it writes down in NAME.want
 * Use:   a model is in use if a service or the section `engine` of the file names it, or the launch document of an
 *        instance of this machine. Only models of models.list that are not in use are ever removed, the one read
 *        longest ago first (access or change of a file, whichever is later), and only with `evict`
 * Bound: PULL_ROOM_ITEMS_MAX items. PULL_FREE_BYTES stay free on the disk
 */
#pragma once
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/io/config/config.h"

#define PULL_ROOM_ITEMS_MAX 1024u
#define PULL_FREE_BYTES ((uint64_t)100 << 20) /* `muster doctor` fails below it */

struct pull_room {
    const char *folder;          /* that is written to */
    const struct config *config; /* names models and services; NULL: none */
    uint64_t max;                /* of the folder; UINT64_MAX: it is not models.folder */
    const char *item; /* name in the folder that is written; its own files are no obstacle */
    bool evict;
    struct buf evicted; /* JSON texts of the names that were removed, joined by commas */
};
void pull_room_fini(struct pull_room *r);

/* Makes room for `more` bytes beside what is there, and notes the want for other pulls. -ENOSPC with a sentence; then
 * stderr lists what is there, and what could go. */
int pull_room_make(struct pull_room *r, uint64_t more, struct err *err);

/* Returns how many bytes may be written now without removing anything. */
uint64_t pull_room_left(const struct pull_room *r);

/* Locks FOLDER/.NAME.lock, for one pull of a name at a time. -EBUSY with a sentence that names the holder. */
int pull_room_lock(const char *folder, const char *name, int *ret_fd, struct err *err);

/* Takes the note back. */
void pull_room_done(const struct pull_room *r);
