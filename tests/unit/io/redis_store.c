/* redis_store.c - starts the server, opens stores there, and fills them. */
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

const struct store_log decisions = { "decisions", 10 };

void fill(struct store *s, uint64_t *ret_version)
{
    for (int i = 0; i < 100; i++) {
        char key[16];
        snprintf(key, sizeof key, "k/%03d", i);
        assert_int_equal(store_put_if(s, str_from(key), STR("v"), STORE_ABSENT, ret_version, NULL),
                         0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(store_append(s, &decisions, STR("d"), NULL, NULL), 0);
}

static int count_entry(void *ctx, const struct store_entry *e)
{
    (void)e;
    ++*(uint32_t *)ctx;
    return 0;
}

uint32_t entry_count(struct store *s, struct str prefix)
{
    uint32_t count = 0;
    assert_int_equal(store_list(s, prefix, count_entry, &count, NULL), 0);
    return count;
}

void assert_whole(struct store *s, uint64_t version)
{
    uint64_t seq = 0, later = 0;
    assert_int_equal(entry_count(s, STR("k/")), 100);
    /* Versions and numbers of records go on where they were. */
    assert_int_equal(store_append(s, &decisions, STR("e"), &seq, NULL), 0);
    assert_int_equal(seq, 4);
    assert_int_equal(store_put_if(s, STR("new"), STR("v"), STORE_ABSENT, &later, NULL), 0);
    assert_true(later > version);
}
