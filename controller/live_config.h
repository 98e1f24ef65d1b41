/* live_config.h - keeps the configuration in force: the file's, or one that a person has applied since.
 *
 * Layer:   controller (base/io)
 * Threads: the loop's
 * Rules:   (1) the last change holds, wherever it was made: an applied configuration holds over restarts
 *              until the file is changed; a changed file replaces an applied one, running or at a start
 *          (2) a configuration with a problem, or with a change that needs a restart, is refused as a
 *              whole and by the name of the key; the one in force stays
 *          (3) it is durable before it holds: record "config" of the store has its generation, its giver,
 *              the digest of the file at that time and, where it was applied, its text
 *          (4) flags and variables of the start come before both, as before the file
 *          (5) sections that other parts read (router, agent) are compared and told, and not judged
 *          (6) on a shared store it is opened at the start of a term. Then the digest is of what the file says
 *              about the fleet, which is what the files of several controllers have in common; what needs a
 *              restart in section controller is each one's own, and not judged
 *          (7) services of objects (objects/service_list.h) stand beside those of the file or the applied
 *              configuration, whichever holds, and change on their own; record "config.objects" has them
 *
 *     load (parse, check, compare) -> the caller prepares -> keep (durable) -> the caller commits -> take
 */
#pragma once
#include "base/core/hash.h"
#include "base/io/config/config.h"
#include "base/io/store/store.h"

#include <sys/stat.h>

/* Of a text that is applied: it is kept in the store. */
#define LIVE_CONFIG_BYTES_MAX ((size_t)384 << 10)
#define LIVE_CONFIG_BY_BYTES 80
#define LIVE_CONFIG_NAME_BYTES 256

struct live_config_setup { /* borrowed for the object's life */
    const struct config *start;
    struct config_sources sources; /* that it was loaded from; path NULL: there is no file */
    int (*check)(const struct config *config, struct err *err); /* beyond the schema; NULL: none */
    struct store *store;
};

/* Where a change comes from. What is in force comes from the file or was applied, with the objects' services. */
enum live_source { LIVE_FILE, LIVE_APPLIED, LIVE_OBJECTS, LIVE_SOURCE_COUNT };
extern const char *const live_source_names[LIVE_SOURCE_COUNT]; /* file, applied, objects */

struct live_config {
    struct live_config_setup setup;
    struct config *owned;      /* in force; NULL: setup.start is */
    struct buf text, services; /* that it was made from; the latter a list of objects' services */
    struct buf stored;         /* the list that the store has, until it is taken; see open */
    enum live_source source;
    char by[LIVE_CONFIG_BY_BYTES], name[LIVE_CONFIG_NAME_BYTES];
    uint64_t generation;
    int64_t at_us;                     /* a date: since when it is in force */
    char file_digest[SHA256_HEX + 1];  /* of the file as read last; see rule 6 */
    char taken_digest[SHA256_HEX + 1]; /* of the text in force */
    struct stat seen, pending;         /* of the file; st_ino 0: none */
    int64_t refused_us;                /* a date; 0: none was refused since the last change */
    char refused_by[LIVE_CONFIG_BY_BYTES];
    struct err refused;
};

/* A configuration that may come into force. Fini also after take. */
struct live_candidate {
    struct config *config;
    enum live_source source;
    struct str text;                /* borrowed; LIVE_OBJECTS: that in force */
    struct str services;            /* borrowed; LIVE_OBJECTS: the list; else: that in force */
    const char *name, *by;          /* borrowed */
    struct buf kept, kept_services; /* copies of both */
    struct buf changes; /* a JSON list: [{"path":..,"kind":..,"from":..,"to":..,"effect":..}] */
    struct buf paths;   /* of the first changes, for people */
    uint32_t count;
};

/* Decides what is in force at a start. An applied configuration that cannot be loaded any more is logged, and
 * the file holds. Services of objects are not in force yet: `stored` has them, and the caller puts those that
 * still fit into force (load, restore) before it begins to act. */
int live_config_open(struct live_config *l, const struct live_config_setup *setup, int64_t date_us,
                     struct err *err);
void live_config_fini(struct live_config *l);
const struct config *live_config_get(const struct live_config *l);

/* Loads c->text, checks it and compares it with what is in force. -EINVAL when it is refused. */
int live_config_load(const struct live_config *l, struct live_candidate *c, struct err *err);
void live_candidate_fini(struct live_candidate *c);

/* Makes it durable. It is in force from take on. */
int live_config_keep(struct live_config *l, const struct live_candidate *c, int64_t date_us,
                     struct err *err);
void live_config_take(struct live_config *l, struct live_candidate *c, int64_t date_us);

/* Puts a candidate of stored services into force, as it was: no new generation. */
void live_config_restore(struct live_config *l, struct live_candidate *c);

/* Returns true if the file's text, as read last, is not the one in force, though it may mean the same. */
bool live_config_differs(const struct live_config *l);

/* Remembers for people why one was refused. */
void live_config_refuse(struct live_config *l, const char *by, const struct err *err, int rc,
                        int64_t date_us);

/* Returns true if the file has another content than when it was read last, and was not written to since the
 * call before: an editor may be at it. */
bool live_config_file_changed(struct live_config *l);

/* Appends the file's text. */
int live_config_read(struct live_config *l, struct buf *text, struct err *err);

/* Appends {"config":[{"source":..,"generation":..,..,"settings":{..}}]}. */
int live_config_put(const struct live_config *l, struct buf *out);
