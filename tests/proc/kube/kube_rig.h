/* kube_rig.h - starts API servers, scripted and real, and gives a test a loop with a client on it.
 *
 * A server has one token and one user, who may do everything. All functions fail the test when something does
 * not happen within RIG_WAIT_US.
 */
#pragma once
#include "base/io/kube/kube_client.h"
#include "base/io/kube/kube_watch.h"
#include "base/io/loop/clock.h"
#include "tests/proc/rig/rig.h"

#define KUBE_RIG_NS "default"

struct kube_server {
    bool real;
    struct rig_process api, etcd;
    uint16_t port, control, etcd_port;
    char ca[RIG_PATH], token_path[RIG_PATH], kubeconfig[RIG_PATH];
};

/* Start a server; false and a message where it cannot run. A real one takes some seconds. */
bool kube_rig_fake(struct kube_server *s, const char *const *more);
bool kube_rig_real(struct kube_server *s);
void kube_rig_end(struct kube_server *s);

/* The scripted server's control port: POST with a body, and a number of /seen. */
void kube_rig_post(const struct kube_server *s, const char *path, const char *body);
int64_t kube_rig_seen(const struct kube_server *s, const char *key);

/* Writes another token into the file that clients read. */
void kube_rig_token(const struct kube_server *s, const char *token);

/* Runs a program's tests on the scripted server, then on a real one. Returns main's status. */
int kube_rig_both(int (*run)(struct kube_server *s));

/* Stops the process of the API server without ending it, and lets it go on. Its connections stay open. */
void kube_rig_pause(const struct kube_server *s);
void kube_rig_resume(const struct kube_server *s);

/* Kills the API server and starts it again; a real one keeps its objects, as etcd runs on. Histories are
 * forgotten. */
void kube_rig_restart(struct kube_server *s);

/* ---- a client ---- */

struct kube_world {
    struct kube_server *server;
    struct loop *loop;
    struct kube_config *config;
    struct kube_client *client;
};

/* Opens a client with the token file of the server. { 0 } of config: defaults, with short back-offs. */
struct kube_world kube_world_open(struct kube_server *s, struct kube_client_config config);
/* Takes scripts, settings and objects off the scripted server, and opens a client. */
struct kube_world kube_world_fresh(struct kube_server *s);
void kube_world_close(struct kube_world *w);

/* Does the same with another source of the configuration. */
struct kube_world kube_world_from(struct kube_server *s, const struct kube_source *source,
                                  struct kube_client_config config);

/* Turns the loop until the condition holds; fails the test after RIG_WAIT_US. */
#define KUBE_UNTIL(world, condition)                                                           \
    do {                                                                                       \
        int64_t kube_until_ = clock_mono_us() + RIG_WAIT_US;                                   \
        while (!(condition)) {                                                                 \
            if (clock_mono_us() > kube_until_) fail_msg("waited in vain for: %s", #condition); \
            assert_int_equal(loop_turn((world)->loop, 2000), 0);                               \
        }                                                                                      \
    } while (0)

/* The record of one call. */
struct kube_seen {
    struct kube_call *call;
    int ends;
    struct kube_reply reply; /* body and problem are in the two below */
    struct buf body;
    char problem[KUBE_REPLY_PROBLEM_BYTES];
};
void kube_seen_fini(struct kube_seen *s);

/* Start a call, and make one and wait for its end. Fill on_end and arg themselves. */
void kube_go(struct kube_world *w, struct kube_seen *s, struct kube_request req);
void kube_do(struct kube_world *w, struct kube_seen *s, struct kube_request req);

/* Makes a call that must end with `rc` and a problem with these words. */
void kube_expect(struct kube_world *w, struct kube_request req, int rc, const char *says);

/* Makes a call that must succeed and returns the object's metadata. */
struct kube_meta kube_must(struct kube_world *w, struct kube_request req);

/* ---- resources ---- */

extern const struct kube_resource kube_pods, kube_configmaps, kube_deployments, kube_budgets,
    kube_namespaces, kube_leases;

/* Creates a ConfigMap with one key. */
struct kube_meta kube_make_map(struct kube_world *w, const char *name, const char *value);
void kube_set_map(struct kube_world *w, const char *name, const char *value);
void kube_delete_map(struct kube_world *w, const char *name);
