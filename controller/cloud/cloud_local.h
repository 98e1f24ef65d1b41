/* cloud_local.h - makes this machine a cloud: an instance is a `muster agent` with its engine.
 *
 * Layer:   controller/cloud (base/io)
 * Threads: one at a time: each call reads and writes files, and a create forks (cloud_thread.h)
 * Folder:  one folder an intent, under `folder`:
 *              spec.json   the launch document; its presence is the instance (written atomically)
 *              agent.lock  held by the living agent, with its identity (base/io/file.h)
 *              engine.id   identity and port of the engine's process, written by that process
 *                          before it becomes the engine
 *              removed     the wish to remove it, with the time of the first (fleet time)
 *              *.log       of agent and engine
 *          and ended/, the logs of the last LOCAL_ENDED_MAX instances, and .epoch, the highest epoch of
 *          the controllers that share the folder
 * Rules:   (1) the folder is the idempotency key: a second create finds it. The agent takes the
 *              lock before it starts an engine, so even two agents of one folder make one engine.
 *          (2) an agent that died while its engine lives is started again, by list and create; so is
 *              one that never came up within LOCAL_SPAWN_US. With agent and engine dead the
 *              instance is gone, as a machine is after a power cut.
 *          (3) agents and engines live in sessions of their own: they outlive the controller
 *          (4) the shares of the running instances stay below machine_share; beyond it: OFFER_CAPACITY
 * Spot:    an offer with `spot` has a scripted market, so that a laptop shows what a cloud does: each
 *          instance is taken away at the age `spot_life`, announced `spot_notice` before; its zone
 *          sells nothing for `spot_outage` from then on (.zones/NAME holds the time); prices
 *          go round `spot_price`, one every `spot_step`. The script depends on fleet time and on the
 *          instance's own age alone, so that a controller that restarts sees the same market
 */
#pragma once
#include "controller/cloud/cloud.h"

#define LOCAL_OFFERS_MAX 16
#define LOCAL_ENDED_MAX 16
#define LOCAL_PRICES_MAX 16    /* of an offer's script */
#define LOCAL_SPAWN_US 5000000 /* from the spawn of an agent to its lock */
#define LOCAL_KILL_US 40000000 /* from the wish to remove to SIGKILL */
#define LOCAL_LEFTOVER_S 60    /* a folder without a document is being made until then */
#define LOCAL_SEQS_MAX 16      /* sequences of an engine when the offer says nothing */

struct local_offer {
    struct str name;
    double share; /* of a core */
    double price_h;
    int64_t launch_us; /* launch delay: pending until then */
    int64_t lead_us;   /* until it serves: the first guess, learned later */
    int64_t seqs_max;
    /* Prior of its step-time model; all 0: none. */
    double perf_step_s, perf_prefill_s, perf_decode_s, perf_read_s;
    struct str zone; /* empty: none is named */
    bool spot;
    int64_t spot_life_us, spot_notice_us, spot_outage_us; /* 0: never, none, none */
    double spot_price[LOCAL_PRICES_MAX];
    uint32_t spot_price_count; /* 0: always price_h */
    int64_t spot_step_us;
};

struct local_config {
    const char *folder;
    const char *const *agent; /* NULL-terminated: program and words before --spec PATH */
    double machine_share;     /* cores that may be given out */
    const struct local_offer *offer;
    uint32_t offer_count;
};

/* Tells fn of folders that stand for no instance, and with `remove` removes them. `alone`: no controller
 * uses the folder, so that instances that have ended count too; those that run are told and stay. */
int cloud_local_leftovers(const char *folder, bool alone, bool remove, cloud_leftover_fn fn,
                          void *arg, struct err *err);

/* Everything in `config` is copied; its folder must be there before an instance is made or listed. The
 * backend's close frees *ret_ctx; running instances go on. */
extern const struct cloud_backend cloud_local_backend;
int cloud_local_open(const struct local_config *config, void **ret_ctx, struct err *err);
