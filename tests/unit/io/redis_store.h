/* redis_store.h - a real Redis server and the stores of a test on it, each test with a fleet of its own.
 *
 * For the tests of the store on Redis. One server runs at a time under `server`; a test starts others itself.
 */
#pragma once
#include "base/io/store/store.h"
#include "tests/redis_server.h"
#include "tests/unit/io/store_suite.h"

#define PATIENT_US 20000000 /* where no test waits for its end */
#define FAILOVER_US 1000000
#define TIMEOUT_US 300000
/* Of a busy machine, on top of a bound; with it still below eight bounds, the next longest wait. */
#define SLACK_US 1500000

extern char folder[]; /* of the servers; made by folder_make */
extern struct redis_server server;
extern char url[160];
extern int number;           /* of the fleet in use */
extern const char *password; /* the file with it */
extern int64_t timeout_us;

bool folder_make(void); /* false: it cannot be made */
void folder_remove(void);

int open_at(const char *at, const char *password_file, struct store **ret, struct err *err);
struct store *open_or_fail(const char *at);
struct store *open_new(void); /* empty, of another fleet than the last one */
struct store *join(struct store *first);
void use_tcp(void);
void use_socket(void);
void start(const char *const *more);
int stop(void **state);

/* Takes the lease as soon as the server can be reached again, and a replica has it where there is one. */
void lead_again(struct store *s);
