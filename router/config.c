/* config.c - declares the settings of the router. */
#include "router/config.h"

#include "base/io/http/http_peers.h"
#include "base/io/loop/text_pool.h"
#include "base/io/tunnel/tunnel.h"
#include "fleet/defaults.h"

#define AT(member) .offset = offsetof(struct router_config, member)

// clang-format off
static const struct config_field rows[] = {
    { .name = "listen", .type = CONFIG_TEXT, .default_text = "127.0.0.1:8080", AT(listen),
      .about = "Address and port for clients; beyond loopback API keys are required." },
    { .name = "controller", .type = CONFIG_TEXT, AT(controller),
      .about = "Address and port of the controller, which names the endpoints; `https://HOST:PORT` "
               "where it speaks TLS." },
    { .name = "controllers", .type = CONFIG_TEXTS, .min = 0, .max = 8, AT(controllers),
      .about = "Addresses of several controllers, of which one leads; the router finds it." },
    { .name = "secret_file", .type = CONFIG_TEXT, AT(secret_file),
      .about = "File with the secret that the parts of a fleet share; made when absent." },
    { .name = "send_secret", .type = CONFIG_BOOL, .default_text = "false", AT(send_secret),
      .about = "Send the fleet's secret itself to engines and controllers that know no signatures: only "
               "while a fleet goes from or to a release of before them." },
    { .name = "name", .type = CONFIG_TEXT, .default_text = "router-0", .max = 64, AT(name),
      .about = "Name of this router, stable over restarts." },
    { .name = "agents_reach", .type = CONFIG_TEXT, .max = REPORT_NAME_BYTES_MAX, AT(agents_reach),
      .about = "[https://]HOST:PORT at which agents that dial out (`agent.tunnel`) reach this router itself, "
               "not a balancer before several; empty: they are not told of it." },
    { .name = "tunnels_max", .type = CONFIG_INT, .default_text = "256", .min = 0, .max = 1024,
      .unit = "tunnels", AT(tunnels_max),
      .about = "Tunnels of agents that it takes, one an instance; 503 beyond." },
    { .name = "tunnel_silence", .type = CONFIG_DURATION, .default_text = "15s", .min = 1e6, .max = 36e8,
      AT(tunnel_silence_us),
      .about = "A tunnel that brought no byte for so long is lost; it is asked after a third of that." },
    { .name = "endpoints", .type = CONFIG_TEXTS, .min = 0, .max = 64, AT(endpoints),
      .about = "Engines besides those the controller names; `HOST:PORT/prefill` computes prompts only, "
               "`HOST:PORT/decode` decodes only; `https://` before it: TLS; `tunnel:NAME:PORT`: by its agent's tunnel." },
    { .name = "cors_origins", .type = CONFIG_TEXTS, .min = 0, .max = 16, AT(cors_origins),
      .about = "Origins whose pages may call the API, such as the console's." },
    { .name = "hosts", .type = CONFIG_TEXTS, .min = 0, .max = 16, AT(hosts),
      .about = "Further host names by which requests may call the API while no API key is needed." },
    { .name = "keys_file", .type = CONFIG_TEXT, AT(keys_file),
      .about = "File that keeps over a restart what the controller said of API keys; by default "
               "`router.keys` beside the secret." },
    { .name = "metrics_key_file", .type = CONFIG_TEXT, AT(metrics_key_file),
      .about = "File with one key a line that opens /metrics and nothing else, for a scraper." },
    { .name = "route", .type = CONFIG_TEXT, .default_text = "completion", .reloadable = true,
      AT(route), .about = "Routing policy; `muster policies` lists them." },
    { .name = "predict", .type = CONFIG_TEXT, .default_text = "key_table", AT(predict),
      .about = "Predictor of output lengths; `muster policies predict` lists them." },
    { .name = "migrate", .type = CONFIG_TEXT, .default_text = "none", AT(migrate),
      .about = "Which running requests move to another instance; `muster policies migrate` lists the "
               "policies." },
    { .name = "predict_file", .type = CONFIG_TEXT, AT(predict_file),
      .about = "File that keeps what the predictor learned: merged in at start, written at a "
               "clean end." },
    { .name = "record", .type = CONFIG_TEXT, AT(record),
      .about = "File for routing decisions as `muster replay` reads them: views, lengths and "
               "hashes, no text." },
    { .name = "record_max", .type = CONFIG_BYTES, .default_text = "256MiB", .min = 65536,
      .max = 4e9, AT(record_max), .about = "Bytes of that file; nothing is recorded beyond." },
    { .name = "threads", .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 64,
      .unit = "threads", AT(threads),
      .about = "Threads that move bytes; one more decides." },
    { .name = "text_threads", .type = CONFIG_INT, .default_text = "2", .min = 1,
      .max = TEXT_THREADS_MAX, .unit = "threads", AT(text_threads),
      .about = "Threads that read, render and tokenise bodies above 16 KiB." },
    { .name = "text_queue", .type = CONFIG_BYTES, .default_text = "64MiB",
      .min = TEXT_QUEUE_BYTES_MIN, .max = 4e9, AT(text_queue),
      .about = "Bodies that wait for those threads or are at them; 429 beyond." },
    { .name = "log_max", .type = CONFIG_BYTES, .default_text = "32MiB", .min = 65536, .max = 64e9,
      AT(log_max),
      .about = "A log file is renamed to FILE.1 at this size and three older ones are kept; what "
               "goes to a pipe or the journal is left alone." },
    { .name = "requests_max", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ROUTER_REQUESTS_MAX),
      .min = 1, .max = 100000, .unit = "requests", AT(requests_max),
      .about = "Requests in the router at once; 429 beyond." },
    { .name = "connections_max", .type = CONFIG_INT, .default_text = "10000", .min = 1,
      .max = 1000000, .unit = "connections", AT(connections_max),
      .about = "Connections of clients that a thread keeps, or half of the process's descriptors "
               "(RLIMIT_NOFILE) if those are fewer; the longest idle is closed for a new one, 503 when "
               "all are busy." },
    { .name = "connections_address_max", .type = CONFIG_INT, .default_text = "0", .min = 0,
      .max = 1000000, .unit = "connections", AT(connections_address_max),
      .about = "Connections that a thread keeps of one address (IPv6: of a /64), loopback and "
               "`proxies` excepted; 429 beyond; 0: a quarter of all." },
    { .name = "proxies", .type = CONFIG_TEXTS, .min = 0, .max = HTTP_PROXIES_MAX, AT(proxies),
      .about = "Addresses or networks (`10.0.0.0/8`) of proxies: all clients come from there, so "
               "`connections_address_max` does not hold for them." },
    { .name = "held_max", .type = CONFIG_INT, .default_text = DEFAULT_TEXT(ROUTER_HELD_MAX), .min = 0,
      .max = 100000, .unit = "requests", AT(held_max),
      .about = "Requests that wait for an instance to start; beyond, the last of the tenant that has "
               "most gives way to one that has fewer; 503." },
    { .name = "hold_max", .type = CONFIG_DURATION, .default_text = ROUTER_HOLD_TEXT, .min = 0, .max = 36e8,
      AT(hold_us_max), .about = "The longest a request waits for an instance." },
    { .name = "held_comment", .type = CONFIG_DURATION, .default_text = "10s", .min = 0, .max = 36e8,
      AT(held_comment_us), .about = "Pause after which a streamed request that is held is answered with a comment that says "
                                    "how long an instance will take, again and again; 0: never." },
    { .name = "index_bytes", .type = CONFIG_BYTES, .default_text = ROUTER_INDEX_TEXT, .min = 65536,
      .max = 64e9, AT(index_bytes), .about = "Memory of the prefix index." },
    { .name = "ping", .type = CONFIG_DURATION, .default_text = "15s", .min = 100000, .max = 36e8,
      AT(ping_us), .about = "Silence after which a stream that has begun gets a comment, or Anthropic's ping, so that "
                            "proxies keep it." },
    { .name = "request_max", .type = CONFIG_DURATION, .default_text = "10m", .min = 1000,
      .max = 864e8, AT(request_us_max), .about = "The longest a request may take in all." },
    { .name = "engine_head", .type = CONFIG_DURATION, .default_text = "30s", .min = 100000,
      .max = 36e8, AT(engine_head_us),
      .about = "An engine that has not begun to reply after so long is taken for hung: the request "
               "goes elsewhere." },
    { .name = "engine_gap", .type = CONFIG_DURATION, .default_text = "10s", .min = 1e6, .max = 36e8,
      AT(engine_gap_us),
      .about = "The longest silence of an engine in the midst of a reply, which carries a heartbeat "
               "a second; beyond it, the output continues elsewhere." },
    { .name = "other_first", .type = CONFIG_DURATION, .default_text = "2m", .min = 100000,
      .max = 864e8, AT(other_first_us),
      .about = "The same to the first byte of a streamed reply of other engines, such as vLLM, "
               "whose queues are silent." },
    { .name = "other_gap", .type = CONFIG_DURATION, .default_text = "1m", .min = 100000,
      .max = 864e8, AT(other_gap_us), .about = "The same between two bytes of such a reply." },
    { .name = "quarantine", .type = CONFIG_DURATION, .default_text = "1h", .min = 0, .max = 864e8,
      AT(quarantine_us),
      .about = "For how long a prompt that killed two engines is refused to every client; 0: it is "
               "not. `muster quarantine` shows and clears." },
    { .name = "sync", .type = CONFIG_DURATION, .default_text = SYNC_PERIOD_TEXT, .min = 10000, .max = 6e7,
      AT(sync_us), .about = "How often the controller is told of demand and asked for endpoints." },
    { .name = "slo_ttft", .type = CONFIG_DURATION, .default_text = "2s", .min = 1, .max = 36e8,
      AT(slo_ttft_us), .about = "TTFT SLO where the controller names no other." },
    { .name = "slo_tpot", .type = CONFIG_DURATION, .default_text = "200ms", .min = 1, .max = 36e8,
      AT(slo_tpot_us), .about = "TPOT SLO where the controller names no other." },
    { .name = "kv_link", .type = CONFIG_BYTES, .default_text = "1GB", .min = 0, .max = 1e13,
      .unit = "bytes/s", AT(kv_link),
      .about = "How fast an engine is sent K and V by another, where the controller does not say; "
               "0: engines do not copy." },
    { .name = "seed", .type = CONFIG_INT, .default_text = "1", .min = 0, .max = 9e15, AT(seed),
      .about = "Seed of the policy's chance." },
    { .name = "require_key", .type = CONFIG_BOOL, .default_text = "false", AT(require_key),
      .about = "Refuse requests without a known API key, on loopback too." },
    TLS_SERVER_ROWS(struct router_config, tls),
    TLS_ROW(struct router_config, tls, ca, "PEM file with the CAs of controller and engines, where "
            "they speak TLS; without it the system's."),
    TRACE_ROWS(struct router_config, trace),
};
// clang-format on

static const struct config_record record = CONFIG_RECORD_OF(struct router_config, rows);

const struct config_section router_section = {
    .name = "router",
    .about = "The part that takes client requests and sends them to engines.",
    .record = &record,
};

int router_address(struct str text, struct str *ret_host, uint16_t *ret_port, struct err *err)
{
    int rc = str_host_port(text, ret_host, ret_port);
    return rc < 0 ? err_set(err, rc, "'" STR_FMT "': want HOST:PORT", STR_ARG(text)) : 0;
}

int router_endpoint(struct str text, struct router_endpoint *ret, struct err *err)
{
    struct router_endpoint e = { 0 };
    struct str role = text;
    e.tls = tls_url_cut(&role);
    struct str address = str_cut(&role, '/');
    uint32_t named = 0;
    bool has_role = role.len > 0 || str_ends(text, STR("/"));
    while (has_role && named < ROLE_COUNT && !str_eq(role, str_from(role_names[named])))
        named++;
    if (named == ROLE_COUNT) {
        return err_set(err, -EINVAL,
                       "'" STR_FMT "': no role '" STR_FMT "'; there are both, prefill and decode",
                       STR_ARG(text), STR_ARG(role));
    }
    int rc = router_address(address, &e.host, &e.port, err);
    if (rc == 0 && e.tls && tunnel_is_host(e.host))
        return err_set(err, -EINVAL,
                       "'" STR_FMT "': a tunnel has TLS beneath it, where its agent dials https://",
                       STR_ARG(text));
    e.role = (enum role)named;
    if (rc == 0) *ret = e;
    return rc;
}
