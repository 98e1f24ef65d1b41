/* cloud_local.h - this machine as a cloud: an instance is a `muster agent` with its engine.
 *
 * Layer:   controller/cloud (base/io)
 * Folder:  one folder an intent, under `folder`:
 *              spec.json   the launch document; its presence is the instance (written atomically)
 *              agent.lock  held by the living agent, with its identity (base/io/file.h)
 *              engine.id   identity and port of the engine's process, written by that process
 *                          before it becomes the engine
 *              removed     the wish to remove it, with the time of the first (fleet time)
 *              *.log       of agent and engine
 *          and ended/, the logs of the last LOCAL_ENDED_MAX instances (cloud_local_folder.c)
 * Rules:   (1) the folder is the idempotency key: a second create finds it. The agent takes the
 *              lock before it starts an engine, so even two agents of one folder make one engine.
 *          (2) an agent that died while its engine lives is started again, by list and get; so is
 *              one that never came up within LOCAL_SPAWN_US. With agent and engine dead the
 *              instance is gone, as a machine is after a power cut.
 *          (3) agents and engines live in sessions of their own: they outlive the controller
 *          (4) the shares of what runs stay below machine_share; beyond it: OFFER_CAPACITY
 */
#pragma once
#include "controller/cloud/cloud.h"

#define LOCAL_OFFERS_MAX 16
#define LOCAL_ENDED_MAX 16
#define LOCAL_SPAWN_US 5000000 /* from the spawn of an agent to its lock */
#define LOCAL_KILL_US 40000000 /* from the wish to remove to SIGKILL */
#define LOCAL_SEQS_MAX 16      /* sequences of an engine when the offer says nothing */

struct local_offer {
    struct str name;
    double share; /* of a core */
    double price_h;
    int64_t launch_us; /* launch delay: pending until then */
    int64_t lead_us;   /* until it serves: the first guess, learned later */
    int64_t seqs_max;
    double perf_a, perf_b, perf_c, perf_d; /* prior of its step-time model; all 0: none */
};

struct local_config {
    const char *folder;
    const char *const *agent; /* NULL-terminated: program and words before --spec PATH */
    double machine_share;     /* cores that may be given out */
    const struct local_offer *offer;
    uint32_t offer_count;
};

/* Everything in `config` is copied. *ret is closed with cloud_close; what runs goes on. */
int cloud_local_open(const struct local_config *config, struct cloud *ret, struct err *err);
