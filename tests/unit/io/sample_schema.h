/* sample_schema.h - defines a schema with every type and bound, for t_config and f_config. */
#pragma once
#include "base/io/config/config.h"

struct sample_kv {
    int64_t page_tokens;
    int64_t bytes;
};

struct sample_engine {
    struct str model;
    int64_t port;
    bool prefix_caching;
    bool eager;
    double utilization;
    int device;
    int64_t idle_us;
    struct sample_kv kv;
    struct config_texts stop;
    struct str salt;
    int64_t trace_steps;
};

struct sample_pool {
    struct str name;
    double price;
    int64_t delay_us;
    struct sample_kv kv;
};

struct sample_service {
    struct str name;
    int64_t ttft_us;
    int kind;
    struct config_records pools;
    struct config_texts tenants;
};

enum sample_device { DEVICE_CPU, DEVICE_CUDA };

static const char *const sample_devices[] = { "cpu", "cuda", NULL };
static const char *const sample_kinds[] = { "both", "prefill", "decode", NULL };

static const struct config_field sample_kv_rows[] = {
    { .name = "page_tokens",
      .type = CONFIG_INT,
      .unit = "tokens",
      .default_text = "16",
      .min = 16,
      .max = 64,
      .about = "Tokens in a page.",
      .offset = offsetof(struct sample_kv, page_tokens) },
    { .name = "bytes",
      .type = CONFIG_BYTES,
      .default_text = "64MiB",
      .min = 1 << 20,
      .max = CONFIG_NO_MAX,
      .about = "Memory for the KV cache.",
      .offset = offsetof(struct sample_kv, bytes) },
};
static const struct config_record sample_kv_record =
    CONFIG_RECORD_OF(struct sample_kv, sample_kv_rows);

static const struct config_field sample_engine_rows[] = {
    { .name = "model",
      .type = CONFIG_TEXT,
      .required = true,
      .about = "Path of the GGUF file.",
      .offset = offsetof(struct sample_engine, model) },
    { .name = "port",
      .type = CONFIG_INT,
      .default_text = "8200",
      .min = 0,
      .max = 65535,
      .about = "Port to listen on; 0 takes a free one.",
      .offset = offsetof(struct sample_engine, port) },
    { .name = "prefix_caching",
      .type = CONFIG_BOOL,
      .default_text = "true",
      .reloadable = true,
      .about = "Whether pages of earlier prompts are used again.",
      .offset = offsetof(struct sample_engine, prefix_caching) },
    { .name = "eager",
      .type = CONFIG_BOOL,
      .default_text = "false",
      .about = "Whether weights are read before the first request.",
      .offset = offsetof(struct sample_engine, eager) },
    { .name = "utilization",
      .type = CONFIG_FLOAT,
      .default_text = "0.9",
      .min = 0.05,
      .max = 1,
      .about = "Share of the device's memory.",
      .offset = offsetof(struct sample_engine, utilization) },
    { .name = "device",
      .type = CONFIG_ENUM,
      .names = sample_devices,
      .default_text = "cpu",
      .about = "Where the model runs.",
      .offset = offsetof(struct sample_engine, device) },
    { .name = "idle",
      .type = CONFIG_DURATION,
      .default_text = "10s",
      .min = 0,
      .max = 86400e6,
      .reloadable = true,
      .about = "How long a connection may stay idle.",
      .offset = offsetof(struct sample_engine, idle_us) },
    { .name = "kv",
      .type = CONFIG_RECORD,
      .record = &sample_kv_record,
      .about = "The KV cache.",
      .offset = offsetof(struct sample_engine, kv) },
    { .name = "stop",
      .type = CONFIG_TEXTS,
      .default_text = "</s>,<|end|>",
      .min = 0,
      .max = 4,
      .about = "Texts that end a reply.",
      .offset = offsetof(struct sample_engine, stop) },
    { .name = "salt",
      .type = CONFIG_TEXT,
      .min = 2,
      .max = 8,
      .about = "Tells this fleet's blocks from others'.",
      .offset = offsetof(struct sample_engine, salt) },
    { .name = "trace_steps",
      .type = CONFIG_INT,
      .debug = true,
      .default_text = "0",
      .about = "Steps to write to the log.",
      .offset = offsetof(struct sample_engine, trace_steps) },
};
static const struct config_record sample_engine_record =
    CONFIG_RECORD_OF(struct sample_engine, sample_engine_rows);

static const struct config_field sample_pool_rows[] = {
    { .name = "name",
      .type = CONFIG_TEXT,
      .required = true,
      .about = "Name of the pool.",
      .offset = offsetof(struct sample_pool, name) },
    { .name = "price",
      .type = CONFIG_FLOAT,
      .unit = "dollars an hour",
      .default_text = "1",
      .min = 0,
      .max = CONFIG_NO_MAX,
      .about = "Price of an instance.",
      .offset = offsetof(struct sample_pool, price) },
    { .name = "delay",
      .type = CONFIG_DURATION,
      .default_text = "500ms",
      .about = "How long a launch takes.",
      .offset = offsetof(struct sample_pool, delay_us) },
    { .name = "kv",
      .type = CONFIG_RECORD,
      .record = &sample_kv_record,
      .about = "The KV cache of its instances.",
      .offset = offsetof(struct sample_pool, kv) },
};
static const struct config_record sample_pool_record =
    CONFIG_LIST_OF(struct sample_pool, sample_pool_rows, "name");

static const struct config_field sample_service_rows[] = {
    { .name = "name",
      .type = CONFIG_TEXT,
      .required = true,
      .about = "Name of the service.",
      .offset = offsetof(struct sample_service, name) },
    { .name = "ttft",
      .type = CONFIG_DURATION,
      .default_text = "2s",
      .about = "SLO of the time to the first token.",
      .offset = offsetof(struct sample_service, ttft_us) },
    { .name = "kind",
      .type = CONFIG_ENUM,
      .names = sample_kinds,
      .default_text = "both",
      .about = "What its instances do.",
      .offset = offsetof(struct sample_service, kind) },
    { .name = "pools",
      .type = CONFIG_RECORDS,
      .record = &sample_pool_record,
      .required = true,
      .min = 1,
      .max = 8,
      .about = "Where its instances come from.",
      .offset = offsetof(struct sample_service, pools) },
    { .name = "tenants",
      .type = CONFIG_TEXTS,
      .about = "Who may use it.",
      .offset = offsetof(struct sample_service, tenants) },
};
static const struct config_record sample_service_record =
    CONFIG_LIST_OF(struct sample_service, sample_service_rows, "name");

static const struct config_section sample_engine_section = { .name = "engine",
                                                             .about = "One model server.",
                                                             .record = &sample_engine_record };
static const struct config_section sample_services_section = { .name = "services",
                                                               .about = "What the fleet serves.",
                                                               .record = &sample_service_record,
                                                               .list = true };
static const struct config_section *const sample_sections[] = { &sample_engine_section,
                                                                &sample_services_section };
static const struct config_absent sample_absent[] = { { "motor", "see engine" }, { NULL, NULL } };
static const struct config_schema sample_schema = { sample_sections, COUNT_OF(sample_sections),
                                                    sample_absent };
