/* fleet_rig.c - starts a fleet's processes and finds those that the controller started. */
#include "tests/proc/rig/fleet_rig.h"

#include "base/core/own.h"
#include "base/io/file.h"

#include <dirent.h>
#include <stdio.h>

#define SERVICES "/api/v1/services"

struct rig_process controller, router;
char fleet_state[128], fleet_secret[160];
static char config[160];

void fleet_start_controller(void)
{
    uint16_t port = controller.port ? controller.port : rig_port();
    controller = rig_server("controller", port, ARGS("--config", config));
}

void fleet_start_router(void)
{
    uint16_t port = router.port ? router.port : rig_port();
    router = rig_server(
        "router", port,
        ARGS("--config", config, "--controller", controller.at, "--secret-file", fleet_secret));
}

void fleet_open(const char *tick, const char *yaml)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    snprintf(fleet_state, sizeof fleet_state, "%s/state", rig_folder());
    snprintf(fleet_secret, sizeof fleet_secret, "%s/secret", fleet_state);
    snprintf(config, sizeof config, "%s/muster.yaml", rig_folder());
    buf_printf(&text, "controller: { tick: %s, state: '%s' }\n%s", tick, fleet_state, yaml);
    assert_int_equal(file_write_atomic(config, buf_view(&text), 0600, NULL), 0);
    rig_hurry_agents();
    fleet_start_controller();
    fleet_start_router();
}

void fleet_scale(int count)
{
    char body[64], bearer[RIG_BEARER];
    rig_bearer(fleet_secret, bearer);
    snprintf(body, sizeof body,
             count < 0 ? "{\"pool\":\"only\",\"count\":null}" : "{\"pool\":\"only\",\"count\":%d}",
             count);
    assert_int_equal(rig_call_with(controller.port, SERVICES "/tiny/scale", bearer, body, NULL),
                     200);
}

bool fleet_is_at(uint32_t count)
{
    return rig_number(controller.port, SERVICES, "ready") == count &&
           rig_number(controller.port, SERVICES, "starting") == 0 &&
           rig_number(controller.port, SERVICES, "draining") == 0 &&
           rig_metric(router.port, "muster_router_endpoints") == count;
}

static bool is_at(void *arg)
{
    return fleet_is_at(*(const uint32_t *)arg);
}

void fleet_wait(uint32_t count)
{
    char what[64];
    snprintf(what, sizeof what, "%u instances are ready and no other", count);
    rig_wait(is_at, &count, what);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Lists the names of the instances' folders, sorted, and returns their number. */
static uint32_t instance_names(char name[FLEET_INSTANCES_MAX][64])
{
    char path[192];
    uint32_t count = 0;
    snprintf(path, sizeof path, "%s/instances", fleet_state);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (strncmp(e->d_name, "i-", 2) != 0) continue;
        assert_true(count < FLEET_INSTANCES_MAX);
        snprintf(name[count++], sizeof name[0], "%.60s", e->d_name);
    }
    closedir(dir);
    qsort(name, count, sizeof name[0], by_name);
    return count;
}

static bool has_folders(void *arg)
{
    char name[FLEET_INSTANCES_MAX][64];
    return instance_names(name) == *(const uint32_t *)arg;
}

/* Waits until there are `count` folders: the folder of an instance outlives it for some time. */
void fleet_ids(const char *file, struct proc_id *ret, uint32_t count)
{
    char name[FLEET_INSTANCES_MAX][64], path[320];
    rig_wait(has_folders, &count, "there are as many folders as instances");
    assert_int_equal(instance_names(name), count);
    for (uint32_t i = 0; i < count; i++) {
        CLEANUP(buf_fini) struct buf text = { 0 };
        ret[i] = (struct proc_id){ 0 };
        snprintf(path, sizeof path, "%s/instances/%.63s/%.63s", fleet_state, name[i], file);
        if (file_read(path, 256, &text, NULL) < 0) continue;
        struct str rest = buf_view(&text);
        (void)proc_id_parse(str_trim(str_cut(&rest, '\n')), &ret[i]);
    }
}

bool fleet_has_successor(void *arg)
{
    const struct fleet_successor *s = arg;
    char name[FLEET_INSTANCES_MAX][64];
    struct proc_id now[FLEET_INSTANCES_MAX];
    fleet_ids(s->file, now, instance_names(name));
    return now[0].pid && !proc_id_eq(&now[0], &s->before) && proc_is_alive(&now[0]);
}

static void prompt_body(const struct buf *text, struct buf *body)
{
    buf_printf(body, "{\"prompt\":\"%s\",\"max_tokens\":4,\"temperature\":0}", text->data);
}

void fleet_prompt(uint32_t tokens, struct buf *body)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint32_t count = 0;
    /* The last word is one token. The whole prompt is never sent from here: it may kill engines. */
    while (count < tokens - 1) {
        CLEANUP(buf_fini) struct buf reply = { 0 }, ask = { 0 };
        buf_text(&text, count + 10 < tokens ? " house of" : " a");
        prompt_body(&text, &ask);
        assert_int_equal(rig_call(router.port, "/v1/completions", ask.data, &reply), 200);
        const char *at = strstr(reply.data, "\"prompt_tokens\":");
        assert_true(at && sscanf(at, "\"prompt_tokens\":%u", &count) == 1);
    }
    assert_int_equal(count, tokens - 1);
    buf_text(&text, " a");
    prompt_body(&text, body);
}
