/* market_stalls.c - puts a market behind fakes of EC2, Compute Engine and Azure, each with its driver before it.
 *
 * Before each call the fake is told what the market has now: stock, spot, prices, whether the API answers. */
#include "tests/fakes/cloud/market_stalls.h"

#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/cloud_fake.h"
#include "controller/cloud/web/web_tags.h"
#include "tests/fakes/cloud/fake_azure.h"
#include "tests/fakes/cloud/fake_ec2.h"
#include "tests/fakes/cloud/fake_gce.h"
#include "tests/fakes/cloud/web_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_ID "AKIDEXAMPLEOFTESTS00"
#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define AZURE_SECRET "Zx8Q~the-secret-of-the-application"
#define CREATE_US (2 * CLOUDS_SECOND)
#define REMOVE_US CLOUDS_SECOND
#define GCE 1                      /* place of Compute Engine in market_provider */
#define LAG_US (5 * CLOUDS_SECOND) /* of what listings show */

/* What each provider calls its machines, in the order of the market's pools. */
static const char *const type_names[MARKET_POOLS] = {
    "g5.xlarge",
    "g6.2xlarge",
    "g6e.2xlarge",
    "g2-standard-8",
    "a2-ultragpu-1g",
    "a3-highgpu-1g",
    "Standard_NC24ads_A100_v4",
    "Standard_NC40ads_H100_v5",
};

static const char *const heads[MARKET_PROVIDERS] = {
    "clouds:\n"
    "  - name: aws\n"
    "    kind: ec2\n"
    "    region: us-east-1\n"
    "    image: ami-0123456789abcdef0\n",
    "clouds:\n"
    "  - name: gcp\n"
    "    kind: gce\n"
    "    project: p-1\n"
    "    image: projects/debian-cloud/global/images/family/debian-12\n",
    "clouds:\n"
    "  - name: azure\n"
    "    kind: azure\n"
    "    project: " FAKE_AZURE_SUBSCRIPTION "\n"
    "    group: " FAKE_AZURE_GROUP "\n"
    "    tenant: " FAKE_AZURE_TENANT "\n"
    "    region: " FAKE_AZURE_REGION "\n"
    "    image: 'Debian:debian-12:12-gen2:latest'\n"
    "    networks: "
    "[/subscriptions/s/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/"
    "subnets/fleet]\n"
    "    ssh_keys: ['ssh-ed25519 AAAA me']\n",
};

static const char *const environs[MARKET_PROVIDERS][3] = {
    { "AWS_ACCESS_KEY_ID=" KEY_ID, "AWS_SECRET_ACCESS_KEY=" SECRET, NULL },
    { NULL },
    { "AZURE_CLIENT_ID=" FAKE_AZURE_CLIENT, "AZURE_CLIENT_SECRET=" AZURE_SECRET, NULL },
};

struct stall {
    const struct market *market;
    uint32_t provider, first; /* first: of its pools */
    struct fake_fleet fleet;
    struct web_rig rig;
    struct cloud_backend backend; /* under the provider's name */
    struct cloud_delay *delay;
    int64_t turned_us;
};

struct market_stalls {
    struct stall stall[MARKET_PROVIDERS];
    struct fake_ec2 ec2;
    struct fake_gce gce;
    struct fake_azure azure;
};

/* ---- the market as a fake shows it ---- */

static int64_t second_of(int64_t now_us)
{
    return (now_us - CLOUDS_START) / CLOUDS_SECOND;
}

static int64_t udollars(double dollars)
{
    return llround(dollars * 1e6);
}

static void turn(void *ctx, int64_t now_us)
{
    struct stall *s = ctx;
    struct fake_fleet *f = &s->fleet;
    int64_t at_s = second_of(now_us);
    if (s->turned_us == now_us) return;
    s->turned_us = now_us;
    for (uint32_t t = 0; t < f->config.type_count; t++) {
        uint32_t pool = s->first + t;
        f->config.type[t].spot_udollars_h = udollars(market_price_h(s->market, pool, true, at_s));
        for (uint32_t z = 0; z < MARKET_ZONES; z++) {
            f->stock[t][z] = market_has(s->market, pool, z, false, at_s) ? -1 : 0;
            f->spot_stock[t][z] = market_has(s->market, pool, z, true, at_s) ? -1 : 0;
        }
    }
    f->config.script_count = 0;
    if (!market_answers(s->market, s->provider, at_s))
        f->config.script[f->config.script_count++] =
            (struct fleet_row){ .any_op = true, .fault = FLEET_UNREACHABLE };
    else if (market_loses_reply(s->market, (uint64_t)at_s * MARKET_PROVIDERS + s->provider))
        f->config.script[f->config.script_count++] =
            (struct fleet_row){ .op = FLEET_CREATE, .fault = FLEET_LOST_REPLY };
}

static uint32_t index_of(const char *const *names, uint32_t count, const char *name)
{
    uint32_t i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    must(i < count);
    return i;
}

static uint32_t machines(void *ctx, int64_t now_us, struct clouds_machine *ret)
{
    struct stall *s = ctx;
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->fleet.count; i++) {
        const struct fleet_machine *m = &s->fleet.machine[i];
        if (m->made_us > now_us || (m->removed_us && m->removed_us <= now_us)) continue;
        must(count < CLOUDS_MACHINES_MAX);
        uint64_t number = m->id * MARKET_PROVIDERS + s->provider;
        uint32_t type = index_of(type_names, MARKET_POOLS, m->type);
        struct clouds_machine *to = &ret[count++];
        *to = (struct clouds_machine){
            .number = number,
            .pool = type,
            .zone = index_of(market_provider[s->provider].zone, MARKET_ZONES, m->zone),
            .spot = m->spot,
            .made_us = m->made_us,
            .ready_us =
                m->made_us + (int64_t)(market_lead_of_s(s->market, type, number) * CLOUDS_SECOND),
            .goes_us = m->removed_us,
            .lost = m->taken,
        };
        snprintf(to->intent, sizeof to->intent, "%s", fleet_tag_of(m, WEB_TAG_INTENT));
    }
    return count;
}

static void take(void *ctx, const struct clouds_machine *m, int64_t notice_us, int64_t now_us)
{
    struct stall *s = ctx;
    fake_fleet_preempt(&s->fleet, fake_fleet_find(&s->fleet, m->number / MARKET_PROVIDERS),
                       notice_us, now_us);
}

/* ---- opening ---- */

/* Returns the answer of the fake, to which the market has been told first. */
#define RESPOND(provider, fake)                                                         \
    static int64_t respond_##fake(void *ctx, const struct web_ask *ask, int64_t now_us, \
                                  struct arena *arena, struct web_reply *ret)           \
    {                                                                                   \
        struct market_stalls *f = ctx;                                                  \
        turn(&f->stall[provider], now_us);                                              \
        return fake_##fake.respond(&f->fake, ask, now_us, arena, ret);                  \
    }
RESPOND(0, ec2)
RESPOND(1, gce)
RESPOND(2, azure)

static const struct cloud_fake fakes[MARKET_PROVIDERS] = {
    { .name = "ec2", .respond = respond_ec2 },
    { .name = "gce", .respond = respond_gce },
    { .name = "azure", .respond = respond_azure },
};

static void set_fleet(struct stall *s)
{
    struct fleet_config c = { .lag_us = LAG_US,
                              .keys_unique = s->provider == 0,
                              .zone_count = MARKET_ZONES };
    for (uint32_t z = 0; z < MARKET_ZONES; z++)
        c.zone[z] = market_provider[s->provider].zone[z];
    while (market_pool[s->first].provider != s->provider)
        s->first++;
    for (uint32_t k = s->first; k < MARKET_POOLS && market_pool[k].provider == s->provider; k++) {
        struct fleet_type *t = &c.type[c.type_count++];
        *t = (struct fleet_type){ .price_udollars_h = udollars(market_pool[k].price_h),
                                  .spot_udollars_h = udollars(market_pool[k].spot_h),
                                  .cores = 8,
                                  .gpus = 1,
                                  .memory_gib = 64 };
        snprintf(t->name, sizeof t->name, "%s", type_names[k]);
    }
    fake_fleet_init(&s->fleet, &c);
}

static void write_offers(const struct stall *s, struct buf *out)
{
    struct offer offer[PLAN_OFFERS_MAX];
    uint32_t count = clouds_offers(s->provider, offer), pool, zone;
    buf_text(out, "    calls_per_s: 1000\n    offers:\n");
    for (uint32_t i = 0; i < count; i++) {
        const struct offer *o = &offer[i];
        const char *const *names = market_provider[s->provider].zone;
        clouds_offer_at(s->provider, i, &pool, &zone);
        buf_printf(out, "      - {name: %s, type: %s, zones: [", o->name, type_names[pool]);
        for (uint32_t z = 0; z < MARKET_ZONES; z++)
            if (zone == MARKET_ZONES || zone == z)
                buf_printf(out, "%s'%s'", zone == MARKET_ZONES && z > 0 ? ", " : "", names[z]);
        buf_printf(out, "], spot: %s, lead: %.0fs, max_num_seqs: %u", o->spot ? "true" : "false",
                   o->lead_s, o->seqs_max);
        /* Compute Engine's API tells no prices. */
        if (s->provider == GCE) buf_printf(out, ", gpus: 1, price_per_hour: %.6f", o->price_h);
        buf_printf(
            out, ", perf_step: %.9f, perf_prefill: %.9f, perf_decode: %.9f, perf_read: %.12f}\n",
            o->prior.step_s, o->prior.prefill_token_s, o->prior.decode_seq_s, o->prior.kv_read_s);
    }
}

static int64_t latency(void *ctx, const struct cloud_call *call)
{
    (void)ctx;
    return call->op == CLOUD_CREATE ? CREATE_US : call->op == CLOUD_REMOVE ? REMOVE_US : 0;
}

static void open_stall(struct market_stalls *f, uint32_t p, struct clouds_seller *ret)
{
    struct stall *s = &f->stall[p];
    CLEANUP(buf_fini) struct buf yaml = { 0 };
    buf_text(&yaml, heads[p]);
    write_offers(s, &yaml);
    must(yaml.rc == 0);
    web_rig_open(&s->rig, yaml.data, &fakes[p], f, environs[p]);
    s->backend = web_drive_backend;
    s->backend.name = market_provider[p].name;
    must(cloud_delay_new(&s->backend, &s->rig.drive, latency, &s->delay) == 0);
    *ret = (struct clouds_seller){
        .cloud = cloud_delay_cloud(s->delay, &(struct cloud){ .lag_us = s->rig.settings[0].lag_us,
                                                              .poll_us = CLOUDS_BUSY_US }),
        .ctx = s,
        .tells_no_prices = s->provider == GCE,
        .turn = turn,
        .machines = machines,
        .take = take,
    };
}

struct market_stalls *market_stalls_new(const struct market *market,
                                        struct clouds_seller *ret_sellers)
{
    struct market_stalls *f = calloc(1, sizeof *f);
    must(f);
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        f->stall[p].market = market;
        f->stall[p].provider = p;
        set_fleet(&f->stall[p]);
    }
    f->ec2.fleet = &f->stall[0].fleet;
    f->ec2.aws = (struct fake_aws){ .key_id = KEY_ID,
                                    .secret = SECRET,
                                    .region = "us-east-1",
                                    .session_us = 3600 * RIG_SECOND,
                                    .date_us = RIG_DATE_US };
    f->gce.fleet = &f->stall[1].fleet;
    f->gce.project = "p-1";
    f->gce.on_machine = true;
    f->gce.date_us = RIG_DATE_US;
    f->azure.fleet = &f->stall[2].fleet;
    f->azure.secret = AZURE_SECRET;
    f->azure.date_us = RIG_DATE_US;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        open_stall(f, p, &ret_sellers[p]);
    return f;
}

uint32_t market_stalls_bad_forms(const struct market_stalls *f, const char **ret_last)
{
    uint32_t n = 0;
    *ret_last = "";
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        n += f->stall[p].fleet.refused_form;
        if (f->stall[p].fleet.refused_form) *ret_last = f->stall[p].fleet.last_refused;
    }
    return n;
}

uint32_t market_stalls_calls(const struct market_stalls *f, enum fleet_op op)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++)
        n += f->stall[p].fleet.calls[op];
    return n;
}

void market_stalls_free(struct market_stalls *f)
{
    for (uint32_t p = 0; p < MARKET_PROVIDERS; p++) {
        cloud_delay_free(f->stall[p].delay);
        web_rig_close(&f->stall[p].rig);
        fake_fleet_fini(&f->stall[p].fleet);
    }
    free(f);
}
