/* defaults.h - defines the default periods and bounds of a fleet.
 *
 * Layer: fleet
 * Rules: (1) the configuration of router, engine, agent and controller takes its defaults from here,
 *            and so does the simulator: neither has a number of its own
 *        (2) a duration or a size is written twice, as a number and as people write it;
 *            tests/unit/hosts/t_bounds compares the two
 */
#pragma once

/* ---- periods ---- */

/* A router to the controller; at once when it begins to hold requests. */
#define SYNC_PERIOD_US 500000
#define SYNC_PERIOD_TEXT "500ms"
#define REPORT_PERIOD_US 1000000 /* an agent to the controller */
#define REPORT_PERIOD_TEXT "1s"
#define TICK_PERIOD_US 1000000 /* the controller decides */
#define TICK_PERIOD_TEXT "1s"
#define URGENT_TICK_US 20000 /* several urgent events within this time make one tick */
#define URGENT_SYNC_US 20000 /* several held requests make one sync ahead of its time */

/* ---- bounds ---- */

#define ROUTER_REQUESTS_MAX 4096 /* in a router at once; 429 beyond */
#define ROUTER_HELD_MAX 512      /* of them held for an instance; 503 beyond */
#define ROUTER_HOLD_US_MAX 60000000
#define ROUTER_HOLD_TEXT "60s" /* longest wait of a held request; 503 then */
#define ROUTER_INDEX_BYTES 67108864
#define ROUTER_INDEX_TEXT "64MiB" /* of the prefix index; the oldest block is evicted */
#define ENGINE_WAITING_MAX 256    /* requests that an engine queues; 429 beyond */

/* Turns a number into the text of a setting's default. */
#define DEFAULT_TEXT_(number) #number
#define DEFAULT_TEXT(number) DEFAULT_TEXT_(number)
/* Age up to which a router relies on the load that an engine reported. */
#define TOLD_FRESH_US 5000000
