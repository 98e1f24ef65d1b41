/* reroute.h - declares the table that the relay and the rerouted parts of Muster share.
 *
 * A part that runs with libreroute.so preloaded connects to the relay instead of another
 * part on this machine. It notes its own name and the port it meant in the table, under its source port.
 * While a cut separates the two, it connects to the hole instead: a listener with a full queue, for which
 * the kernel drops the first packet, as a cut wire would.
 *
 * Threads: each word is atomic and has one writer. All map the file that the environment variable
 *          REROUTE_TABLE names.
 */
#pragma once
#include <stdatomic.h>
#include <stdint.h>

#define REROUTE_ENV "REROUTE_TABLE"

enum part { PART_OTHER, PART_CONTROLLER, PART_ROUTER, PART_AGENT, PART_ENGINE, PART_COUNT };

/* Seen from the caller: FORTH cuts the bytes that it sends, BACK those that it would receive. */
enum cut { CUT_NONE, CUT_FORTH, CUT_BACK, CUT_BOTH, CUT_RESET };

#define REROUTE_PORTS 65536

struct reroute_table {
    uint16_t relay_port, hole_port, closed_port;
    _Atomic uint16_t known[PART_COUNT]; /* the port of each part; other ports are engines' */
    _Atomic uint32_t cut[PART_COUNT][PART_COUNT]; /* from, to: enum cut | port << 16; port 0: any */
    _Atomic uint32_t note[REROUTE_PORTS];         /* by source port: enum part | port meant << 16 */
};

static inline enum part reroute_part_at(const struct reroute_table *t, uint16_t port)
{
    for (unsigned p = PART_CONTROLLER; p < PART_ENGINE; p++)
        if (port == t->known[p]) return (enum part)p;
    return PART_ENGINE;
}

static inline enum cut reroute_cut_of(const struct reroute_table *t, enum part from, uint16_t port)
{
    uint32_t word = t->cut[from][reroute_part_at(t, port)];
    uint16_t only = (uint16_t)(word >> 16);
    return only == 0 || only == port ? (enum cut)(word & 0xffff) : CUT_NONE;
}
