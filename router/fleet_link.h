/* fleet_link.h - signs the router's calls to engines and the controller, and checks commands sent to it.
 *
 * Layer:   router (base/io)
 * Threads: any; made before the threads and freed after them
 * Rules:   (1) each engine has a key of its own; a call signed for one proves nothing to another
 *          (2) an engine that the configuration lists is signed for under the empty name: it does not
 *              know the name it has here
 *          (3) an engine reads pages from another with a ticket that we make, for one tenant
 */
#pragma once
#include "base/io/auth/auth_gate.h"
#include "base/io/auth/key_file.h"
#include "base/io/auth/signed_call.h"

#define FLEET_TICKET_US 60000000 /* a fetch takes ten seconds at most, and may wait before it */
#define FLEET_AGENT "agent/"     /* begins the ids of agents, which dial in */
#define FLEET_STATIC "static-"   /* begins the names of engines that the configuration lists */

struct fleet_link {
    struct credentials held;
    struct auth_peers peers;  /* shared by the signers of all threads */
    struct auth_gate gate;    /* for requests to the router's own paths */
    struct key_file scrapers; /* keys that open /metrics; the owner loads it */
    bool send_secret;         /* to parts of an older release */
};

/* `secret_file` empty: nothing is held, and nothing is signed. */
int fleet_link_init(struct fleet_link *l, struct str secret_file, bool send_secret, int64_t now_us,
                    struct err *err);
void fleet_link_fini(struct fleet_link *l);

/* A thread's signer over its own client. */
int fleet_link_signer(struct fleet_link *l, struct loop *loop, struct http_client *client,
                      struct signer **ret, struct err *err);

/* The router's identity in calls to one part of the fleet. */
struct fleet_id {
    char text[AUTH_ID_BYTES_MAX + 1];
    struct signed_as as; /* points into this struct; empty where nothing is held */
};
void fleet_id_controller(const struct fleet_link *l, struct fleet_id *ret);
void fleet_id_engine(const struct fleet_link *l, const char *instance, struct fleet_id *ret);

struct fleet_ticket {
    char text[AUTH_ID_BYTES_MAX];     /* empty: none */
    char key[2 * AUTH_KEY_BYTES + 1]; /* hexadecimal */
};

/* Makes a ticket for `reader` to read pages of `tenant` from `owner` at host and port. False: the
 * owner's epoch is not known yet, so that no reader can be sent there. True with an empty ticket: none
 * is needed. */
bool fleet_ticket_make(struct fleet_link *l, const char *owner, const char *host, uint16_t port,
                       const char *reader, struct str tenant, int64_t now_us,
                       struct fleet_ticket *ret);
