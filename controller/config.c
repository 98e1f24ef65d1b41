/* config.c - declares the settings of the controller, its services and the local cloud. */
#include "controller/config.h"

#include "base/io/log.h"
#include "base/io/models.h"
#include "controller/cloud/cloud_local.h"
#include "controller/cloud/kube/kube_section.h"
#include "controller/cloud/offer_rows.h"
#include "controller/cloud/web/web_section.h"
#include "controller/core/plan.h"
#include "fleet/controllers.h"
#include "fleet/defaults.h"
#include "policies/route/overload.h"

#define IN(type, member) .offset = offsetof(struct type, member)
#define LIVE(type, member) .reloadable = true, IN(type, member) /* see live_config.h */
#define NAME .min = 1, .max = NAME_BYTES - 1
#define DAY_US 864e8
_Static_assert(LAUNCH_CONTROLLERS_MAX == 8 && CONTROLLERS_MAX == 8, "as the rows say");

static const char *const join_twice_names[] = { "replace", "report", NULL };

// clang-format off
static const struct config_field controller_rows[] = {
    { .name = "listen", .type = CONFIG_TEXT, .default_text = "127.0.0.1:8090",
      IN(controller_section, listen),
      .about = "Address and port of the API and the console; beyond loopback every request needs the "
               "fleet's secret." },
    { .name = "state", .type = CONFIG_TEXT, .default_text = "muster-state",
      IN(controller_section, state),
      .about = "Folder of the store, the secret and local instances; one controller at a time, unless "
               "`store` is one that they share." },
    { .name = "store", .type = CONFIG_TEXT, .default_text = STORE_FILE, IN(controller_section, store),
      .about = "Where the fleet's state is kept: `file`, or what several controllers share: the URL of a Redis "
               "(`redis://HOST:PORT`), or `kubernetes` (docs/controllers.md)." },
    { .name = "store_password_file", .type = CONFIG_TEXT, IN(controller_section, store_password_file),
      .about = "File with the password for Redis; read at each log-in." },
    { .name = "store_fleet", .type = CONFIG_TEXT, .default_text = "muster", .min = 1, .max = 64,
      IN(controller_section, store_fleet),
      .about = "Name of the fleet in Redis: all its keys begin with it, in braces; in Kubernetes the names "
               "of its objects do." },
    { .name = "store_timeout", .type = CONFIG_DURATION, .default_text = "500ms", .min = 1e4, .max = 1e7,
      IN(controller_section, store_timeout_us),
      .about = "The longest that one call to Redis or to the API server may hold up the controller; eight "
               "times that when a term begins on `kubernetes`." },
    { .name = "store_ca", .type = CONFIG_TEXT, IN(controller_section, store_ca),
      .about = "PEM file with the CAs of Redis where it speaks TLS; without it the system's." },
    { .name = "store_certificate", .type = CONFIG_TEXT, IN(controller_section, store_certificate),
      .about = "PEM file with the certificate that Redis is shown, with its chain." },
    { .name = "store_key", .type = CONFIG_TEXT, IN(controller_section, store_key),
      .about = "PEM file with the key of that certificate." },
    { .name = "leader_lease", .type = CONFIG_DURATION, .default_text = "10s", .min = 5e5, .max = 36e8,
      IN(controller_section, leader_lease_us),
      .about = "With a shared store: a controller that cannot renew its lease leads for so long, and another "
               "waits an eighth longer before it takes over." },
    { .name = "controllers", .type = CONFIG_TEXTS, .min = 0, .max = 8, IN(controller_section, controllers),
      .about = "[https://]HOST:PORT of all controllers on the shared store, as agents reach them." },
    { .name = "secret_file", .type = CONFIG_TEXT, IN(controller_section, secret_file),
      .about = "File with the secret that the parts of a fleet share; made when absent; by default "
               "`secret` in the state folder." },
    { .name = "agents_reach", .type = CONFIG_TEXT, IN(controller_section, agents_reach),
      .about = "[https://]HOST:PORT at which agents reach the controller, when that is not where it "
               "listens." },
    { .name = "metrics_key_file", .type = CONFIG_TEXT, IN(controller_section, metrics_key_file),
      .about = "File with one key a line that opens /metrics and /api/v1/targets and nothing else, for a "
               "scraper." },
    { .name = "hosts", .type = CONFIG_TEXTS, .min = 0, .max = 16, IN(controller_section, hosts),
      .about = "Further host names by which browsers may call the API." },
    { .name = "require_secret", .type = CONFIG_BOOL, .default_text = "false",
      IN(controller_section, require_secret),
      .about = "Ask for the fleet's secret on loopback too for what only reads; what changes something "
               "asks for it always." },
    { .name = "send_secret", .type = CONFIG_BOOL, .default_text = "false",
      IN(controller_section, send_secret),
      .about = "Give new instances the fleet's secret itself, and let their agents send it to an engine "
               "of an older release: only while a fleet goes from or to a release that knows no "
               "signatures." },
    { .name = "require_keys", .type = CONFIG_BOOL, .default_text = "false",
      LIVE(controller_section, require_keys),
      .about = "Routers refuse requests without an API key even while no tenant exists." },
    { .name = "tick", .type = CONFIG_DURATION, .default_text = TICK_PERIOD_TEXT, .min = 1e4, .max = 6e7,
      LIVE(controller_section, tick_us), .about = "How often the controller observes and decides." },
    { .name = "lease", .type = CONFIG_DURATION, .default_text = "15s", .min = 1e6, .max = 36e8,
      LIVE(controller_section, lease_us), .about = "Time that each reply to an agent grants its instance." },
    { .name = "grace", .type = CONFIG_DURATION, .default_text = "15m", .min = 1e6, .max = DAY_US,
      LIVE(controller_section, grace_us),
      .about = "An instance ends itself once it was idle and without a lease for so long." },
    { .name = "age_max", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 366 * DAY_US,
      LIVE(controller_section, age_us),
      .about = "Hard limit on an instance's life; 0 for none; it never ends while it serves." },
    { .name = "drain", .type = CONFIG_DURATION, .default_text = "5m", .min = 1e6, .max = DAY_US,
      LIVE(controller_section, drain_us), .about = "A drain may last so long." },
    { .name = "boot", .type = CONFIG_DURATION, .default_text = "5m", .min = 1e6, .max = DAY_US,
      LIVE(controller_section, boot_us),
      .about = "From the create call to an agent's first report, launch delays included." },
    { .name = "join_within", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = DAY_US,
      LIVE(controller_section, join_within_us),
      .about = "A machine's one-time token is valid for so long from its create call; 0: as long as `boot`." },
    { .name = "join_twice", .type = CONFIG_ENUM, .default_text = "replace", .names = join_twice_names,
      LIVE(controller_section, join_twice),
      .about = "Two agents used one token: `replace` ends the instance, and another is made; `report` only tells." },
    { .name = "silent", .type = CONFIG_DURATION, .default_text = "10m", .min = 1e7, .max = DAY_US,
      LIVE(controller_section, silent_us),
      .about = "A silent instance that serves no router is ended after so long." },
    { .name = "decisions_max", .type = CONFIG_INT, .default_text = "2000", .min = 10, .max = 1e6,
      .unit = "decisions", LIVE(controller_section, decisions_max),
      .about = "Decisions that are kept; the oldest are dropped." },
    TLS_SERVER_ROWS(struct controller_section, tls),
    TLS_ROW(struct controller_section, tls, ca, "PEM file with the CAs that agents trust, and "
            "commands on this machine, where controller and engines speak TLS; without it the "
            "system's."),
    { .name = "log_level", .type = CONFIG_ENUM, .default_text = "info", .names = log_level_names,
      LIVE(controller_section, log_level), .about = "Least level that is logged." },
    { .name = "log_max", .type = CONFIG_BYTES, .default_text = "32MiB", .min = 65536,
      .max = 64e9, LIVE(controller_section, log_max),
      .about = "A log file is renamed to FILE.1 at this size and three older ones are kept; what "
               "goes to a pipe or the journal is left alone." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 9e15, .debug = true,
      IN(controller_section, seed), .about = "Seed of ids and chance; 0: from the system." },
    { .name = "crash_at", .type = CONFIG_TEXT, .debug = true, IN(controller_section, crash_at),
      .about = "Kill the controller at this step of a launch or an end, as tests do." },
};

static const struct config_field pool_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(pool_section, name),
      .about = "Name of the pool, unique within its service." },
    { .name = "provider", .type = CONFIG_TEXT, .default_text = "local", NAME,
      IN(pool_section, provider), .about = "The cloud driver that its instances come from." },
    { .name = "offers", .type = CONFIG_TEXTS, .required = true, .min = 1,
      .max = PLAN_POOL_OFFERS_MAX, LIVE(pool_section, offers),
      .about = "Offers of the provider; `place: order` takes the first that can be had." },
    { .name = "min", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(pool_section, min), .about = "Instances that always run." },
    { .name = "max", .type = CONFIG_INT, .default_text = "4", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(pool_section, max), .about = "Instances at most." },
    { .name = "engine_flags", .type = CONFIG_TEXTS, .min = 0, .max = 64,
      LIVE(pool_section, engine_flags),
      .about = "Flags of the pool's engines: of `muster engine`, or of the program of `engine_kind`." },
    { .name = "engine_kind", .type = CONFIG_ENUM, .default_text = "muster", .names = engine_kind_names,
      LIVE(pool_section, engine_kind),
      .about = "What its engines are; docs/engines.md says what works with each. `openai` can only be adopted." },
    { .name = "engine_command", .type = CONFIG_TEXTS, .min = 0, .max = 32,
      LIVE(pool_section, engine_command),
      .about = "Program of another kind and its first arguments, in place of `vllm serve`, `python3 -m sglang.launch_server` "
               "or `llama-server`; the agent adds model, address and sizes." },
    { .name = "model", .type = CONFIG_TEXT, LIVE(pool_section, model),
      .about = "Other kinds: path or name of the model as that engine reads it; empty: the service's." },
    { .name = "tokenizer", .type = CONFIG_TEXT, LIVE(pool_section, tokenizer),
      .about = "Other kinds: GGUF file, Hugging Face folder, or file of `muster tokenizer`, with the model's tokenizer, by which prefixes are "
               "found; empty: the service's model, if that is a GGUF file." },
    { .name = "context", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1 << 24,
      .unit = "tokens", LIVE(pool_section, context),
      .about = "Other kinds: longest prompt and output of a request; 0: the engine's own default." },
    { .name = "max_num_seqs", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 4096,
      .unit = "requests", LIVE(pool_section, max_num_seqs),
      .about = "Other kinds: requests that an engine runs at once; 0: its own default." },
    { .name = "device", .type = CONFIG_TEXT, .max = REPORT_NAME_BYTES_MAX, LIVE(pool_section, device),
      .about = "Other kinds: CUDA_VISIBLE_DEVICES of vllm, --device of sglang and llama_server; empty: all." },
    { .name = "tunnel", .type = CONFIG_BOOL, .default_text = "false", LIVE(pool_section, tunnel),
      .about = "Routers cannot reach its machines: agents dial the routers (`router.agents_reach`), which call the "
               "engines through that. Engines copy no KV then." },
    { .name = "keep_stopped", .type = CONFIG_INT, .default_text = "0", .max = 64,
      LIVE(pool_section, keep_stopped),
      .about = "At most so many instances are stopped and not removed when they are given up, and started again when the "
               "pool grows; their disks are billed. Offers on demand at ec2, gce, azure, nova." },
    { .name = "kv_events", .type = CONFIG_BOOL, .default_text = "true", LIVE(pool_section, kv_events),
      .about = "vllm, sglang: the engine publishes what it caches, on a Unix socket for its agent." },
    { .name = "role", .type = CONFIG_ENUM, .default_text = "both", .names = role_names,
      LIVE(pool_section, role),
      .about = "What its instances compute: `prefill` prompts and first tokens, `decode` the rest, "
               "`both` whole requests, or what the service's `role` policy says. Other roles want a `min`." },
    { .name = "priority", .type = CONFIG_ENUM, .default_text = "high", .names = priority_names,
      LIVE(pool_section, priority),
      .about = "polca: instances of priority `low` are capped first, those of priority `high` when that "
               "is not enough." },
};
static const struct config_record pool_record = CONFIG_LIST_OF(struct pool_section, pool_rows, "name");

#define ENGINE_ROW(kind, text) \
    { .name = #kind, .type = CONFIG_TEXT, .default_text = "", \
      LIVE(engine_rows_section, kind), .about = text " `muster policies " #kind "` lists them." }
static const struct config_field engine_rows[] = {
    ENGINE_ROW(preset, "A policy of each kind of the step under one name; the kinds below replace single "
                       "policies of it."),
    ENGINE_ROW(fair, "Which tenant's requests come first."),
    ENGINE_ROW(order, "Which waiting session is admitted next."),
    ENGINE_ROW(admit, "When a session may start."),
    ENGINE_ROW(preempt, "Which session gives pages back, and how."),
    ENGINE_ROW(chunk, "How much of a prompt goes into a step."),
    ENGINE_ROW(evict, "Which cached page is dropped first."),
    ENGINE_ROW(draft, "How the next tokens of a sequence are guessed, to compute several in a step; the "
                      "default none guesses nothing."),
    { .name = "draft_model", .type = CONFIG_TEXT, .default_text = "",
      LIVE(engine_rows_section, draft_model),
      .about = "Small model with the same vocabulary that guesses for `draft: model`, as a name, file or "
               "folder like `model`." },
    ENGINE_ROW(perf, "How step times are estimated."),
    ENGINE_ROW(predict, "Predictor of lengths in the engine itself, for policies that read the model's "
                        "hidden state; empty: the router's prediction is used."),
};
static const struct config_record engine_record =
    CONFIG_RECORD_OF(struct engine_rows_section, engine_rows);

static const struct config_field service_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(service_section, name),
      .about = "Name of the service: the model that clients ask for." },
    { .name = "model", .type = CONFIG_TEXT, .required = true, IN(service_section, model),
      .about = "GGUF file, or folder in Hugging Face's format, or a name of `models.list`." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .default_text = "2s", .min = 1000, .max = 36e8,
      LIVE(service_section, slo_ttft_us), .about = "SLO of the time to the first token." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .default_text = "200ms", .min = 100, .max = 36e8,
      LIVE(service_section, slo_tpot_us), .about = "SLO of the time for each further token." },
    { .name = "overload", .type = CONFIG_ENUM, .default_text = "serve", .names = route_overload_names,
      LIVE(service_section, overload),
      .about = "While the fleet is overloaded, a request that is surely late for `slo_ttft`: `serve` queues it, "
               "`refuse` answers 429 with Retry-After, so that others are in time." },
    { .name = "budget_per_hour", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e6,
      .unit = "dollars", LIVE(service_section, budget_h),
      .about = "Ceiling for everything that is billed at once; 0 for none." },
    { .name = "budget_per_day", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e7,
      .unit = "dollars", LIVE(service_section, budget_day),
      .about = "Ceiling for a day (UTC): an hour may cost what is left of it, divided by the hours that are left; 0 for none." },
    { .name = "budget_per_month", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e8,
      .unit = "dollars", LIVE(service_section, budget_month),
      .about = "The same for a calendar month." },
    { .name = "min", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(service_section, min), .about = "Instances over all pools at least." },
    { .name = "max", .type = CONFIG_INT, .default_text = "64", .min = 1,
      .max = CONTROL_COUNT_MAX, .unit = "instances", LIVE(service_section, max),
      .about = "Instances over all pools at most." },
    { .name = "scale", .type = CONFIG_TEXT, .default_text = SCALE_DEFAULT, LIVE(service_section, scale),
      .about = "Scaling policy; `muster policies scale` lists them. Without a value that it needs it "
               "keeps the fleet; `policy_lacks` of `muster get services -o json` names the value." },
    { .name = "shaper", .type = CONFIG_TEXT, .default_text = "", LIVE(service_section, shaper),
      .about = "When the fleet may follow: window, hpa, kpa or none; empty: what the scaling policy "
               "is published with." },
    { .name = "margin", .type = CONFIG_FLOAT, .default_text = "1", .min = 0.1, .max = 10,
      LIVE(service_section, margin),
      .about = "Load is multiplied by it before the scaling policy sees it." },
    { .name = "power", .type = CONFIG_TEXT, .default_text = "", LIVE(service_section, power),
      .about = "At which clock its engines run, a share of full speed that they keep by injecting idle "
               "time; `muster policies power` lists the policies. Empty: all at full speed." },
    { .name = "power_limit_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "watts", LIVE(service_section, power_limit_watts),
      .about = "polca: what the breaker before all instances of the service allows; 0 for no limit." },
    { .name = "row_watts", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e9,
      .unit = "watts", LIVE(service_section, row_watts),
      .about = "Former name of power_limit_watts, read in this release for the last time." },
    { .name = "mix", .type = CONFIG_TEXT, .default_text = "", LIVE(service_section, mix),
      .about = "How many instances of each pool, chosen for the lengths that are expected; `muster policies "
               "mix` lists the policies. Empty: the scaling policy says." },
    { .name = "place", .type = CONFIG_TEXT, .default_text = PLACE_DEFAULT, LIVE(service_section, place),
      .about = "Which of a pool's offers an instance comes from; `muster policies place`." },
    { .name = "role", .type = CONFIG_TEXT, .default_text = "", LIVE(service_section, role),
      .about = "Which instances compute prompts and which decode, among those of pools of role both; "
               "`muster policies role`; empty: all of them serve whole requests." },
    { .name = "kv_link", .type = CONFIG_BYTES, .default_text = "1GB", .min = 0, .max = 1e13,
      LIVE(service_section, kv_link_bytes_s),
      .about = "K and V that one of its engines copies from another in a second, as routers and the policy "
               "at `role` reckon with; 0: its engines copy none." },
    { .name = "utilisation_max", .type = CONFIG_FLOAT, .default_text = "0.85", .min = 0.05,
      .max = 0.99, LIVE(service_section, utilisation_max),
      .about = "work: share of an instance's time that may be planned." },
    { .name = "attainment", .type = CONFIG_FLOAT, .default_text = "0.99", .min = 0.5, .max = 0.9999,
      LIVE(service_section, attainment),
      .about = "work: share of requests that should keep the SLO." },
    { .name = "clear", .type = CONFIG_DURATION, .default_text = "10s", .min = 1e5, .max = 36e8,
      LIVE(service_section, clear_us), .about = "work: a backlog should be gone within this time." },
    { .name = "life", .type = CONFIG_DURATION, .default_text = "10m", .min = 1e6, .max = DAY_US,
      LIVE(service_section, life_us), .about = "work: how long a new instance is expected to be of use." },
    { .name = "zero_after", .type = CONFIG_DURATION, .default_text = "60s", .min = 0, .max = DAY_US,
      LIVE(service_section, zero_after_us),
      .about = "Silence after which the service may go to zero, where its minimum allows it." },
    { .name = "queue_target", .type = CONFIG_FLOAT, .default_text = "5", .min = 0.1, .max = 1e4,
      .unit = "requests", LIVE(service_section, queue_target),
      .about = "keda_queue: waiting requests for each instance." },
    { .name = "concurrency", .type = CONFIG_FLOAT, .default_text = "100", .min = 0.1, .max = 1e4,
      .unit = "requests", LIVE(service_section, concurrency),
      .about = "kpa: requests that an instance should run at once, of which it aims at 0.7." },
    { .name = "ongoing_target", .type = CONFIG_FLOAT, .default_text = "2", .min = 0.1, .max = 1e4,
      .unit = "requests", LIVE(service_section, ongoing_target),
      .about = "ray_serve: requests that an instance has under way." },
    { .name = "qps_target", .type = CONFIG_FLOAT, .default_text = "1", .min = 1e-3, .max = 1e5,
      .unit = "requests/s", LIVE(service_section, qps_target),
      .about = "skyserve: requests a second that an instance serves." },
    { .name = "kv_target", .type = CONFIG_FLOAT, .default_text = "0.5", .min = 0.01, .max = 1,
      LIVE(service_section, kv_target),
      .about = "aibrix_apa, apa_fixed: share of KV memory in use." },
    { .name = "forecast", .type = CONFIG_TEXT, .default_text = "arima",
      LIVE(service_section, forecast),
      .about = "dynamo_throughput, sageserve: constant, kalman, arima or holt." },
    { .name = "count", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(service_section, count), .about = "static: instances." },
    { .name = "stabilisation", .type = CONFIG_DURATION, .default_text = "0", .min = 0,
      .max = DAY_US, LIVE(service_section, down_window_us),
      .about = "window, hpa: nothing goes down below what was asked for within this time; 0: as the "
               "shaper is published (60 s, 300 s)." },
    { .name = "down_step", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(service_section, down_step_max),
      .about = "window: instances of a pool that one decision may drain; 0 for any number." },
    { .name = "up_step", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = CONTROL_COUNT_MAX,
      .unit = "instances", LIVE(service_section, up_step_max),
      .about = "window: instances of a pool that one decision may launch; 0 for any number." },
    { .name = "engine", .type = CONFIG_RECORD, .record = &engine_record,
      IN(service_section, engine), .about = "Policies of its engines, by name, and their draft model; empty: as the section `engine` of this file says." },
    { .name = "engine_flags", .type = CONFIG_TEXTS, .min = 0, .max = 64,
      LIVE(service_section, engine_flags), .about = "Flags of `muster engine` for all pools of kind muster." },
    { .name = "engine_program", .type = CONFIG_TEXT, IN(service_section, engine_program),
      .about = "Program to run in place of `muster engine`, with the same flags." },
    { .name = "pools", .type = CONFIG_RECORDS, .min = 1, .max = SCALE_POOLS_MAX, .required = true,
      .record = &pool_record, LIVE(service_section, pools),
      .about = "Kinds of instances that serve it." },
};
/* Kinds of policies that are chosen elsewhere. */
#define OF_ENGINES "it is a policy of the engines; put it below `engine` of a service"
#define OF_SERVICES "it is a policy of a service; put it into one of `services`"
const struct config_absent config_absent_policies[] = {
    { "route", "it is a policy of the router; put it below `router`" },
    { "migrate", "it is a policy of the router; put it below `router`" },
    { "predict", "it is a policy of the router or of the engines; put it below `router`, or below "
                 "`engine` of a service" },
    { "scale", OF_SERVICES }, { "shaper", OF_SERVICES }, { "forecast", OF_SERVICES },
    { "place", OF_SERVICES }, { "role", OF_SERVICES }, { "power", OF_SERVICES },
    { "preset", OF_ENGINES }, { "fair", OF_ENGINES }, { "order", OF_ENGINES },
    { "admit", OF_ENGINES }, { "preempt", OF_ENGINES }, { "chunk", OF_ENGINES },
    { "evict", OF_ENGINES }, { "draft", OF_ENGINES }, { "perf", OF_ENGINES },
    { NULL, NULL },
};
static const struct config_record service_record = {
    .fields = service_rows,
    .field_count = COUNT_OF(service_rows),
    .size = sizeof(struct service_section),
    .key = "name",
    .absent = config_absent_policies,
};

static const struct config_field offer_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(offer_section, name),
      .about = "Name of the offer." },
    { .name = "share", .type = CONFIG_FLOAT, .required = true, .min = 0.01, .max = 256,
      .unit = "cores", IN(offer_section, share), .about = "Share of a core that an instance gets." },
    { .name = "price_per_hour", .type = CONFIG_FLOAT, .required = true, .min = 0, .max = 1e4,
      .unit = "dollars", IN(offer_section, price_h), .about = "What an instance costs." },
    { .name = "launch_delay", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 36e8,
      IN(offer_section, launch_us), .about = "Time from the order to the machine, as a cloud has it." },
    { .name = "lead", .type = CONFIG_DURATION, .default_text = "3s", .min = 0, .max = 36e8,
      IN(offer_section, lead_us),
      .about = "First guess of the time from machine to readiness; learned from launches." },
    OFFER_PRIOR_ROWS(struct offer_section),
    { .name = "zone", .type = CONFIG_TEXT, .default_text = "", .max = NAME_BYTES - 1,
      IN(offer_section, zone), .about = "Zone of the offer; losses of one zone come together." },
    { .name = "spot", .type = CONFIG_BOOL, .default_text = "false", IN(offer_section, spot),
      .about = "The provider may take instances of this offer away." },
    { .name = "spot_life", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 864e8,
      IN(offer_section, spot_life_us),
      .about = "Script of the local market: an instance is taken away at this age; 0: never." },
    { .name = "spot_notice", .type = CONFIG_DURATION, .default_text = "30s", .min = 0, .max = 36e8,
      IN(offer_section, spot_notice_us),
      .about = "Script: the loss is announced this long before; 0: without notice." },
    { .name = "spot_outage", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 864e8,
      IN(offer_section, spot_outage_us),
      .about = "Script: once a loss is announced the zone sells nothing for this long." },
    { .name = "spot_prices", .type = CONFIG_TEXTS, .min = 0, .max = LOCAL_PRICES_MAX,
      IN(offer_section, spot_prices),
      .about = "Script: dollars an hour, one after the other and round again; none: the price." },
    { .name = "spot_step", .type = CONFIG_DURATION, .default_text = "10m", .min = 1e6,
      .max = 864e8, IN(offer_section, spot_step_us),
      .about = "Script: each of the prices holds for this long." },
};
static const struct config_record offer_record =
    CONFIG_LIST_OF(struct offer_section, offer_rows, "name");

static const struct config_field local_rows[] = {
    { .name = "cores", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 4096,
      IN(local_section, cores),
      .about = "Cores that local instances may use together; 0 for all of the machine." },
    { .name = "offers", .type = CONFIG_RECORDS, .min = 0, .max = 16, .record = &offer_record,
      IN(local_section, offers), .about = "The offers of this machine." },
    { .name = "poll", .type = CONFIG_DURATION, .default_text = "1s", .min = 1e5, .max = 36e8,
      IN(local_section, poll_us),
      .about = "Time between two listings of instances; after a call of ours one comes sooner." },
    { .name = "calls_per_s", .type = CONFIG_FLOAT, .default_text = "20", .min = 0.1, .max = 1e4,
      .unit = "calls/s", IN(local_section, calls_per_s),
      .about = "Budget of calls to the cloud: creates, removes, listings and prices together." },
};
// clang-format on

static const struct config_record controller_record =
    CONFIG_RECORD_OF(struct controller_section, controller_rows);
static const struct config_record local_record = CONFIG_RECORD_OF(struct local_section, local_rows);

const struct config_section controller_section = {
    .name = "controller",
    .about = "The part that keeps the fleet as large as the SLO needs.",
    .record = &controller_record,
};

const struct config_section services_section = {
    .name = "services",
    .about = "Models to serve, each with its SLO, its budget and its pools.",
    .record = &service_record,
    .list = true,
};

const struct config_section local_section = {
    .name = "local",
    .about = "This machine as a cloud.",
    .record = &local_record,
};

void controller_config_fill(struct controller_config *c, const struct config *whole)
{
    const struct config_records *services = config_section_get(whole, services_section.name);
    c->controller = config_section_get(whole, controller_section.name);
    c->service = services->items;
    c->service_count = services->count;
    c->local = config_section_get(whole, local_section.name);
    const struct config_records *clouds = config_section_get(whole, clouds_section.name);
    c->cloud = clouds->items;
    c->cloud_count = clouds->count;
    c->models = config_section_get(whole, models_section.name);
    c->kube = config_section_get(whole, kube_section.name);
    c->whole = whole;
}
