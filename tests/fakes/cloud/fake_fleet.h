/* fake_fleet.h - the truth behind a fake of a provider: machines under tags, stock, prices, a bill, and faults by
 * script. The fakes of APIs speak over it (fake_hetzner.h).
 *
 * Layer:   tests/fakes/cloud (base/core)
 * Threads: one at a time; time is an argument
 * Script:  { operation, nth call, type, zone, from, to, fault }: each row that fits a call counts it; the first that
 *          fits and is due applies. Calls without a row succeed
 * Bill:    whole units of bill_unit_s from made_us, or from a start, to the end or a stop, bill_least_s at least, in
 *          micro-dollars; exact. A stopped machine costs its disk alone
 * Lag:     listings and look-ups show the world lag_us ago; creates and removes meet the world as it is
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "controller/cloud/web/provider.h"

#define FLEET_MACHINES_MAX 4096
#define FLEET_TYPES_MAX 16
#define FLEET_ZONES_MAX 8
#define FLEET_TAGS_MAX 16
#define FLEET_SCRIPT_MAX 32
#define FLEET_TEXT 128

enum fleet_op {
    FLEET_LOGIN,
    FLEET_CREATE,
    FLEET_LIST,
    FLEET_REMOVE,
    FLEET_STOP,
    FLEET_START,
    FLEET_PRICES,
    FLEET_OP_COUNT
};
extern const char *const fleet_op_names[FLEET_OP_COUNT + 1]; /* end with NULL, for options */

enum fleet_fault {
    FLEET_FINE,
    FLEET_STOCK_OUT,
    FLEET_QUOTA,
    FLEET_THROTTLE,  /* delay_us: what Retry-After says */
    FLEET_AUTH,      /* the credential is refused: it has expired */
    FLEET_FORBIDDEN, /* the credential lacks a right */
    FLEET_INVALID,
    FLEET_SERVER_ERROR, /* 5xx, and nothing was done */
    FLEET_UNKNOWN_CODE, /* a refusal in words that no table has, and nothing was done */
    FLEET_UNREACHABLE,  /* nothing was sent */
    FLEET_LOST_REQUEST, /* sent, no reply, nothing was done */
    FLEET_LOST_REPLY,   /* sent, done, no reply */
    FLEET_LATE_SUCCESS, /* sent, no reply, done delay_us later */
    FLEET_HALF_REPLY,   /* done; the reply is cut in the middle of its body, and says so */
    FLEET_GARBAGE,      /* done; the reply is no JSON */
    FLEET_DUPLICATE, /* create: one more machine with the same tags, as a provider's own retry makes it */
    FLEET_SLOW_BOOT,   /* create: ready delay_us later than usual */
    FLEET_SLOW,        /* done, and the reply takes delay_us */
    FLEET_WRONG_CLOCK, /* refused for its date; of APIs with signatures */
    FLEET_FAULT_COUNT
};
extern const char *const fleet_fault_names[FLEET_FAULT_COUNT + 1];

struct fleet_row {
    enum fleet_op op;
    bool any_op;             /* whatever the operation is */
    uint32_t nth;            /* 1-based, of the calls that fit the row; 0: every one */
    int64_t from_us, to_us;  /* 0: always */
    const char *type, *zone; /* create; NULL: any */
    enum fleet_fault fault;
    int64_t delay_us;
    uint32_t seen; /* the fleet's */
};

struct fleet_type {
    char name[FLEET_TEXT];
    int64_t price_udollars_h, spot_udollars_h; /* 0: not sold so */
    double price; /* in the provider's own currency, as its API tells it */
    uint32_t cores, gpus, memory_gib;
};

struct fleet_tag {
    char name[FLEET_TEXT], value[256];
};

struct fleet_machine {
    uint64_t id;
    char name[FLEET_TEXT], key[FLEET_TEXT]; /* key: the provider's idempotency key; empty: none */
    char type[FLEET_TEXT], zone[FLEET_TEXT], image[FLEET_TEXT];
    bool spot;
    struct fleet_tag tag[FLEET_TAGS_MAX];
    uint32_t tag_count;
    char *user_data;
    int64_t made_us;    /* may lie in the future: a late success */
    int64_t ready_us;   /* it has booted */
    int64_t notice_us;  /* the provider has said that it goes; 0: not */
    int64_t removed_us; /* 0: it is there */
    bool taken;         /* by the provider, not by a call */
    int64_t price_udollars_h;
    /* The last stop and the last start, in the order that their times tell; 0: none. What was billed before the later of
     * them, in micro-dollar seconds an hour, is kept. */
    int64_t stopped_us, started_us, billed_before;
};

/* Describes the machine that a create asks for. */
struct fleet_order {
    const char *name, *key, *type, *zone, *image, *user_data;
    bool spot;
    const struct fleet_tag *tag;
    uint32_t tag_count;
};

struct fleet_config {
    int64_t boot_us, lag_us;
    int64_t bill_unit_s, bill_least_s; /* 0: a second */
    int64_t address_udollars_h;        /* of each machine, on top of its type's price */
    int64_t disk_udollars_h;           /* likewise, and what a stopped one costs */
    uint32_t quota;                    /* machines at once; 0: none */
    bool names_unique, keys_unique;
    struct fleet_type type[FLEET_TYPES_MAX];
    uint32_t type_count;
    const char *zone[FLEET_ZONES_MAX];
    uint32_t zone_count;
    struct fleet_row script[FLEET_SCRIPT_MAX];
    uint32_t script_count;
};

struct fake_fleet {
    struct fleet_config config;
    struct fleet_machine *machine; /* FLEET_MACHINES_MAX */
    uint32_t count;
    int32_t stock[FLEET_TYPES_MAX][FLEET_ZONES_MAX]; /* machines that can be had; -1: any number */
    int32_t spot_stock[FLEET_TYPES_MAX]
                      [FLEET_ZONES_MAX]; /* 0: of these none as spot; else as stock says */
    uint32_t calls[FLEET_OP_COUNT];
    uint32_t refused_form; /* requests that the API would not have understood: a driver's defect */
    char last_refused[256];
};

void fake_fleet_init(struct fake_fleet *f, const struct fleet_config *config);
void fake_fleet_fini(struct fake_fleet *f);

/* Counts a call and returns the row that applies to it; NULL: it is fine. Type and zone may be NULL. */
const struct fleet_row *fake_fleet_meet(struct fake_fleet *f, enum fleet_op op, const char *type,
                                        const char *zone, int64_t now_us);

/* Makes a machine, `late_us` from now, ready `slow_us` later than usual. FLEET_STOCK_OUT, FLEET_QUOTA,
 * FLEET_INVALID (no such type or zone) or FLEET_FINE with *ret. A key that is known gives its machine again. Of a
 * late one with the same name nothing comes any more, where names are unique. */
enum fleet_fault fake_fleet_create(struct fake_fleet *f, const struct fleet_order *o,
                                   int64_t late_us, int64_t slow_us, int64_t now_us,
                                   struct fleet_machine **ret);

/* Ends a machine; false: it is not there. */
bool fake_fleet_remove(struct fake_fleet *f, uint64_t id, int64_t now_us);

/* Stops a machine; false: it is not there. One that is stopped stays so. Its place is free for others. */
bool fake_fleet_stop(struct fake_fleet *f, uint64_t id, int64_t now_us);
/* Starts a stopped machine: FLEET_STOCK_OUT, FLEET_INVALID (it is not there) or FLEET_FINE. One that runs, runs on. */
enum fleet_fault fake_fleet_start(struct fake_fleet *f, uint64_t id, int64_t now_us);
bool fleet_is_stopped(const struct fleet_machine *m, int64_t at_us);
struct fleet_machine *fake_fleet_find(struct fake_fleet *f, uint64_t id);

/* The machine that holds a unique name, also one that is on its way. */
struct fleet_machine *fake_fleet_named(struct fake_fleet *f, const char *name, int64_t now_us);

/* True if a listing at now_us shows it. */
bool fake_fleet_shows(const struct fake_fleet *f, const struct fleet_machine *m, int64_t now_us);
const char *fleet_tag_of(const struct fleet_machine *m, const char *name); /* "" : none */

/* Takes a machine away, with notice. */
void fake_fleet_preempt(struct fake_fleet *f, struct fleet_machine *m, int64_t notice_us,
                        int64_t now_us);
/* Sets what can be had; n < 0: any number. */
void fake_fleet_stock(struct fake_fleet *f, const char *type, const char *zone, int32_t n);

/* For oracles. */
uint32_t fake_fleet_running(const struct fake_fleet *f, int64_t now_us); /* stopped ones too */
uint32_t fake_fleet_up(const struct fake_fleet *f, int64_t now_us);      /* without stopped ones */
uint32_t fake_fleet_of_tag(const struct fake_fleet *f, const char *name, const char *value,
                           int64_t now_us); /* running ones */
int64_t fake_fleet_bill_udollars(const struct fake_fleet *f, int64_t now_us);

/* Notes a request that the API would not understand. */
void fake_fleet_bad_form(struct fake_fleet *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A fake of an API: what web_drive.h and the fake's server ask. */
struct cloud_fake {
    const char *name; /* kind of cloud */

    /* For fake_cloud_server: what it sells there, and a ctx over a fleet, which free() frees. */
    const struct fleet_config *fleet;
    void *(*open)(struct fake_fleet *fleet, const char *token, int64_t date_us);

    int64_t (*respond)(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret);
};

/* Ends a reply with what a fault means that no API words: lost, cut, slow. True: the reply is done, and *ret_us is
 * how long it takes. Call it with a complete reply, after the deed. */
bool fleet_break_reply(const struct fleet_row *row, struct web_reply *ret, int64_t *ret_us);
