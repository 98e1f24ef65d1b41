/* redis_store.c - starts the server, and opens stores there. */
#include "tests/unit/io/redis_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

char folder[] = "/tmp/t_store_redis.XXXXXX";
struct redis_server server;
char url[160];
int number;
const char *password = "";
int64_t timeout_us = PATIENT_US;

int open_at(const char *at, const char *password_file, struct store **ret, struct err *err)
{
    char fleet[32];
    snprintf(fleet, sizeof fleet, "fleet-%d", number);
    const struct store_redis_config config = { .url = str_from(at),
                                               .password_file = str_from(password_file),
                                               .fleet = str_from(fleet),
                                               .timeout_us = timeout_us };
    return store_redis_open(&config, ret, err);
}

struct store *open_or_fail(const char *at)
{
    struct store *s = NULL;
    struct err err = { 0 };
    if (open_at(at, password, &s, &err) < 0) fail_msg("%s", err.text);
    return s;
}

struct store *open_new(void)
{
    number++;
    return open_or_fail(url);
}

struct store *join(struct store *first)
{
    (void)first;
    return open_or_fail(url);
}

void use_tcp(void)
{
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", server.port);
}

void use_socket(void)
{
    snprintf(url, sizeof url, "redis+unix://%s?db=3", server.socket);
}

void start(const char *const *more)
{
    redis_start(&server, folder, "one", more);
    use_tcp();
}

int stop(void **state)
{
    (void)state;
    redis_remove(&server);
    server = (struct redis_server){ 0 };
    timeout_us = PATIENT_US;
    return 0;
}

void lead_again(struct store *s)
{
    suite_lead_again(s, REDIS_STARTS_US);
}

bool folder_make(void)
{
    return mkdtemp(folder) != NULL;
}

void folder_remove(void)
{
    char line[160];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    if (system(line) != 0) printf("%s stays\n", folder);
}
