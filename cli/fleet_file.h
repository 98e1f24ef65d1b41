/* fleet_file.h - records the processes that `muster up` started from a state directory for later commands.
 *
 * Layer: cli (base/io)
 * File:  STATE/fleet.json, mode 0600: the processes with their start times, so that a pid that was
 *        reused meanwhile is never taken for ours, and where they listen
 */
#pragma once
#include "base/core/buf.h"
#include "base/io/net/tls.h"
#include "base/io/proc.h"

#include <limits.h>

#define FLEET_FILE_STATE_DEFAULT "muster-state" /* as the configuration has it */
#define FLEET_FILE_HOST_BYTES 64

struct fleet_file_part {
    struct proc_id id; /* pid 0: was not started */
    char host[FLEET_FILE_HOST_BYTES];
    uint16_t port;
    bool tls; /* it speaks TLS there */
};

/* Paths that commands on this machine need to speak TLS with controller and router; "": none. */
struct fleet_file_tls {
    bool on;
    char ca[PATH_MAX], certificate[PATH_MAX], key[PATH_MAX];
};

static inline struct tls_files fleet_file_files(const struct fleet_file_tls *t)
{
    return (struct tls_files){ .ca = str_from(t->ca),
                               .certificate = str_from(t->certificate),
                               .key = str_from(t->key) };
}

struct fleet_file {
    struct fleet_file_part controller, router;
    char config[PATH_MAX]; /* absolute path of the file it was started from */
    char secret[PATH_MAX]; /* path of the fleet's secret */
    struct fleet_file_tls tls;
};

/* Writes "STATE/name" to ret; -ENAMETOOLONG with a sentence. */
int fleet_file_path(struct str state, const char *name, char ret[PATH_MAX], struct err *err);

/* Reads the record; -ENOENT when nothing was started from there, or it was taken down. */
int fleet_file_read(struct str state, struct fleet_file *ret, struct err *err);
int fleet_file_write(struct str state, const struct fleet_file *f, struct err *err);
int fleet_file_remove(struct str state, struct err *err);

static inline bool fleet_file_lives(const struct fleet_file_part *p)
{
    return p->id.pid != 0 && proc_is_alive(&p->id);
}

/* Appends "http://127.0.0.1:8080", or https. An address that means every interface is shown as loopback. */
void fleet_file_url(const struct fleet_file_part *p, struct buf *out);
