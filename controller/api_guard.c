/* api_guard.c - who may call: names that are ours, pages of ours, parts of the fleet, people. */
#include "base/core/bits.h"
#include "base/io/http_browser.h"
#include "controller/api_part.h"

/* The parts that a signature lets pass. An agent speaks for its instance and does nothing else. */
static bool part_may(enum guard guard, struct str id)
{
    if (guard == GUARD_AGENT) return str_starts(id, STR("agent/"));
    if (guard == GUARD_ROUTER) return str_eq(id, STR("router"));
    return str_eq(id, STR("cli"));
}

static bool may(const struct call *k, enum guard guard)
{
    const struct auth_note *note = http_exchange_note(k->x);
    enum token_role role;
    if (note->who == AUTH_PERSON) return true;
    if (note->who == AUTH_NOBODY && guard <= GUARD_WRITE &&
        control_token_find(k->api->control, auth_bearer(k->req), &role))
        return role == TOKEN_ADMIN || guard == GUARD_READ;
    return note->who == AUTH_PART && part_may(guard, auth_gate_id(k->req));
}

static enum browser_fault page_fault(const struct call *k, enum guard guard)
{
    const struct api *a = k->api;
    const struct http_names names = { .own = str_from(a->config.host),
                                      .port = http_server_port(a->server),
                                      .hosts = a->config.hosts,
                                      .host_count = a->config.host_count };
    if (guard < GUARD_AGENT) return browser_check_site(&names, k->req);
    return http_request_header(k->req, "origin").data ? BROWSER_ORIGIN : BROWSER_OK;
}

static bool refuse(struct call *k, const char *reason, const char *sentence)
{
    http_reply_header(k->x, "www-authenticate", STR("Bearer"));
    api_refuse(k, 401, reason, sentence);
    return false;
}

bool api_pass(struct call *k, enum guard guard)
{
    const struct api *a = k->api;
    const struct auth_note *note = http_exchange_note(k->x);
    enum browser_fault fault = page_fault(k, guard);
    if (fault != BROWSER_OK) {
        const struct browser_fault_info *why = browser_fault_info(fault);
        api_refuse(k, why->status, why->name, why->sentence);
        return false;
    }
    if (note->who == AUTH_ASKED_AGAIN)
        return refuse(k, "signature", "sign for the epoch and the time of this reply");
    if (guard == GUARD_NONE) return true;
    if ((guard >= GUARD_WRITE || a->config.require_secret) && !may(k, guard))
        return refuse(
            k, "secret",
            "send the fleet's secret, or a token that may do this: authorization: Bearer TOKEN");
    if (!a->control) {
        api_refuse(k, 503, "starting", "the controller is starting");
        return false;
    }
    return true;
}

bool api_is_agent_of(struct call *k, struct str instance)
{
    const struct auth_note *note = http_exchange_note(k->x);
    struct str id = auth_gate_id(k->req), skip = STR("agent/");
    if (note->who != AUTH_PART) return true; /* a person, or an agent of an older release */
    if (str_eq(str_of(id.data + skip.len, id.len - skip.len), instance)) return true;
    api_refuse(k, 403, "instance", "an agent speaks for its own instance");
    return false;
}
