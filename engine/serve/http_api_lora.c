/* http_api_lora.c - loads and unloads LoRA adapters while the engine runs, and lists them.
 *
 *     POST /v1/load_lora_adapter ── reserve ──► text worker: adapter_load ──► fill ──► reply
 *     POST /v1/unload_lora_adapter ── remove ──► reply; running requests keep the adapter
 *
 * Paths and members are vLLM's. A path is read from this machine's disk, so both are closed unless
 * --allow-runtime-lora-updating opens them, and then open to the fleet alone, like /reset_prefix_cache. */
#include "base/io/log.h"
#include "base/wire/field.h"
#include "base/wire/openai_reply.h"
#include "engine/serve/http_api_state.h"

#include <stdio.h>
#include <stdlib.h>

#define LORA_PATH_BYTES_MAX 4095
#define TEXT_TYPE STR("text/plain; charset=utf-8")

struct lora_ask {
    struct str lora_name, lora_path;
};

static const struct field load_rows[] = {
    FIELD(struct lora_ask, lora_name, FIELD_STR, .required = true, .min = 1,
          .max = ADAPTER_NAME_BYTES_MAX),
    FIELD(struct lora_ask, lora_path, FIELD_STR, .required = true, .min = 1,
          .max = LORA_PATH_BYTES_MAX),
};
static const struct field_set load_set = FIELD_SET(struct lora_ask, load_rows);

static const struct field unload_rows[] = {
    FIELD(struct lora_ask, lora_name, FIELD_STR, .required = true, .min = 1,
          .max = ADAPTER_NAME_BYTES_MAX),
};
static const struct field_set unload_set = FIELD_SET(struct lora_ask, unload_rows);

/* A load on its way. */
struct lora_load {
    struct list link;
    struct http_api *api;
    struct http_exchange *x; /* NULL: the client has left; the adapter is loaded all the same */
    struct text_job job;
    struct adapter_entry *entry;
    struct adapter *adapter;
    int rc;
    struct err err;
    char path[LORA_PATH_BYTES_MAX + 1];
};

static void load_free(struct lora_load *l)
{
    list_remove(&l->link);
    free(l);
}

static void show_counts(struct http_api *api)
{
    struct adapter_seen seen[ADAPTERS_MAX];
    uint64_t bytes;
    uint32_t count = adapters_list(api->config.adapters, seen, &bytes);
    metric_set(engine_metric(api->metrics, EM_ADAPTERS), count);
    metric_set(engine_metric(api->metrics, EM_ADAPTER_BYTES), (double)bytes);
}

/* Returns false after refusing what the engine does not take, or a malformed body. */
static bool read_ask(struct http_api *api, struct http_exchange *x, const struct field_set *set,
                     struct lora_ask *ret)
{
    struct err err = { "" };
    if (!api->config.lora_updates) {
        http_api_refuse(
            api, x, OPENAI_FORBIDDEN, NULL,
            "adapters are not loaded and unloaded while this engine runs: start it with "
            "--enable-lora --allow-runtime-lora-updating");
        return false;
    }
    int rc =
        fields_decode(set, http_exchange_request(x)->body, &api->arena, ret, "the request", &err);
    if (rc == 0) return true;
    http_api_refuse(api, x, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
    return false;
}

/* ---- load ---- */

static void load_run(void *arg)
{
    struct lora_load *l = arg;
    const struct adapters_config *c = adapters_config(l->api->config.adapters);
    l->rc = adapter_load(l->path, l->api->info->loaded, c->rank_max, &l->adapter, &l->err);
}

static void load_done(void *arg)
{
    struct lora_load *l = arg;
    struct http_api *api = l->api;
    const char *name = adapter_entry_name(l->entry).data;
    buf_clear(&api->out);
    if (l->rc == 0) {
        adapters_fill(api->config.adapters, l->entry, l->adapter);
        log_event(LOG_INFO, "adapter_loaded", "name=%s digest=%.12s rank=%u bytes=%zu", name,
                  l->adapter->digest, l->adapter->rank, l->adapter->memory_bytes);
        buf_printf(&api->out, "Success: LoRA adapter '%s' added successfully.", name);
    } else {
        log_event(LOG_WARN, "adapter_refused", "name=%s error=%s", name, err_text(&l->err, l->rc));
        adapters_abandon(api->config.adapters, l->entry);
    }
    show_counts(api);
    if (l->x && l->rc == 0) {
        http_api_count(api, l->x, 200);
        http_reply(l->x, 200, TEXT_TYPE, buf_view(&api->out));
    } else if (l->x) {
        enum openai_problem problem = l->rc == -ENOENT   ? OPENAI_MODEL_NOT_FOUND
                                      : l->rc == -ENOMEM ? OPENAI_UNAVAILABLE
                                                         : OPENAI_INVALID;
        http_api_refuse(api, l->x, problem, "lora_path", "%s", err_text(&l->err, l->rc));
    }
    load_free(l);
}

static void load_left(void *arg, enum http_abort why)
{
    (void)why;
    ((struct lora_load *)arg)->x = NULL;
}

static void refuse_reserve(struct http_api *api, struct http_exchange *x, int rc,
                           const struct err *err)
{
    enum openai_problem problem = rc == -EPERM    ? OPENAI_FORBIDDEN
                                  : rc == -EAGAIN ? OPENAI_OVERLOADED
                                                  : OPENAI_INVALID;
    http_api_refuse(api, x, problem, "lora_name", "%s", err->text);
}

void handle_lora_load(struct http_api *api, struct http_exchange *x)
{
    struct lora_ask ask;
    struct err err = { "" };
    struct adapter_entry *entry;
    if (!read_ask(api, x, &load_set, &ask)) return;
    int rc = adapters_reserve(api->config.adapters, ask.lora_name, &entry, &err);
    if (rc < 0) {
        refuse_reserve(api, x, rc, &err);
        return;
    }
    struct lora_load *l = calloc(1, sizeof *l);
    if (l) {
        l->api = api;
        l->x = x;
        l->entry = entry;
        l->job = (struct text_job){ .run = load_run, .done = load_done, .arg = l };
        memcpy(l->path, ask.lora_path.data, ask.lora_path.len);
        list_push_back(&api->lora_loads, &l->link);
    }
    rc = l ? text_submit(&api->desk, &l->job) : -ENOMEM;
    if (rc == 0) {
        http_exchange_watch(x, load_left, NULL, l);
        return;
    }
    if (l) load_free(l);
    adapters_abandon(api->config.adapters, entry);
    http_api_refuse(api, x, OPENAI_UNAVAILABLE, NULL, "no memory, or too much other work waits");
}

/* ---- unload ---- */

void handle_lora_unload(struct http_api *api, struct http_exchange *x)
{
    struct lora_ask ask;
    uint32_t held = 0;
    if (!read_ask(api, x, &unload_set, &ask)) return;
    if (adapters_remove(api->config.adapters, ask.lora_name, &held) < 0) {
        http_api_refuse(api, x, OPENAI_MODEL_NOT_FOUND, "lora_name",
                        "no adapter '" STR_FMT "' is loaded; GET /v1/models lists them",
                        STR_ARG(ask.lora_name));
        return;
    }
    show_counts(api);
    log_event(LOG_INFO, "adapter_unloaded", "name=" STR_FMT " running=%u", STR_ARG(ask.lora_name),
              held);
    buf_printf(&api->out, "Success: LoRA adapter '" STR_FMT "' removed successfully.",
               STR_ARG(ask.lora_name));
    http_api_count(api, x, 200);
    http_reply(x, 200, TEXT_TYPE, buf_view(&api->out));
}

/* ---- lists ---- */

void handle_models(struct http_api *api, struct http_exchange *x)
{
    struct adapter_seen seen[ADAPTERS_MAX];
    struct openai_model models[1 + ADAPTERS_MAX];
    uint64_t bytes;
    const struct sampling *sampling = api->info ? &api->info->model->sampling : NULL;
    const uint32_t count = adapters_list(api->config.adapters, seen, &bytes);
    models[0] =
        (struct openai_model){ .id = api->config.model_name,
                               .created_s = api->created_s,
                               .context_tokens = api->info ? api->info->context_max : 0,
                               .task = api->info ? model_task_names[api->info->model->task] : NULL,
                               .sampling = sampling };
    for (uint32_t i = 0; i < count; i++) {
        models[1 + i] = models[0];
        models[1 + i].id = str_from(seen[i].name);
        models[1 + i].parent = api->config.model_name;
    }
    openai_models_render(models, 1 + count, &api->out);
    http_api_reply(api, x, 200, buf_view(&api->out));
}

/* ---- life ---- */

void lora_ready(struct http_api *api)
{
    struct adapter_seen seen[ADAPTERS_MAX];
    uint64_t bytes;
    const struct adapters_config *c = adapters_config(api->config.adapters);
    const uint32_t count = adapters_list(api->config.adapters, seen, &bytes);
    if (c->count_max == 0) return;
    show_counts(api);
    log_event(LOG_INFO, "adapters_ready", "loaded=%u most=%u rank_max=%u bytes=%llu bytes_max=%llu",
              count, c->count_max, c->rank_max, (unsigned long long)bytes,
              (unsigned long long)c->count_max * adapter_bytes_max(api->info->loaded, c->rank_max));
}

void lora_free(struct http_api *api)
{
    LIST_EACH_SAFE (&api->lora_loads, node) {
        struct lora_load *l = CONTAINER_OF(node, struct lora_load, link);
        adapter_free(l->adapter);
        adapters_abandon(api->config.adapters, l->entry);
        load_free(l);
    }
}
