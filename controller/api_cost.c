/* api_cost.c - writes what services, pools and tenants cost as JSON, for the views of the API.
 *
 * What is not known is NAN, which JSON has as null. */
#include "base/core/json.h"
#include "controller/charges.h"
#include "controller/control_state.h"

#include <math.h>
#include <string.h>

/* One line of the bill: a service, or one pool of it. */
static void put_spent(struct json_writer *w, const char *service, const char *pool, double per_h,
                      const struct bill_spent *spent)
{
    json_kv_text(w, "service", service);
    json_kv_text(w, "pool", pool);
    json_kv_f64(w, "per_h", per_h);
    json_kv_f64(w, "today", spent->day);
    json_kv_f64(w, "this_month", spent->month);
    json_kv_f64(w, "total", spent->total);
}

/* Lists the services with their tokens, each followed by its pools. */
static void put_bill(struct json_writer *w, const struct control *c)
{
    json_key(w, "bill");
    json_array(w);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct plan_service *sv = &c->desired.service[s];
        const struct bill_spent all = control_spent(c, s, NULL);
        const struct cost m = bill_mtokens(&c->money.bill, sv->name, &c->money.period);
        json_object(w);
        put_spent(w, sv->name, NULL, control_per_h(c, s, PLAN_NONE), &all);
        json_kv_f64(w, "mtokens_today", m.in_day);
        json_kv_f64(w, "mtokens_this_month", m.in_month);
        json_kv_f64(w, "mtokens_total", m.total);
        json_kv_f64(w, "per_mtoken_today", control_per_mtoken(all.day, m.in_day));
        json_kv_f64(w, "per_mtoken_this_month", control_per_mtoken(all.month, m.in_month));
        json_kv_f64(w, "per_mtoken", control_per_mtoken(all.total, m.total));
        json_object_end(w);
        for (uint32_t p = 0; p < sv->pool_count; p++) {
            const struct bill_spent spent = control_spent(c, s, sv->pool[p].name);
            json_object(w);
            put_spent(w, sv->name, sv->pool[p].name, control_per_h(c, s, p), &spent);
            json_object_end(w);
        }
    }
    for (uint32_t o = 0; o < c->money.offer_count; o++) {
        const struct offer *of = &c->money.offer[o];
        if (of->reserved == 0) continue;
        const struct bill_spent spent =
            bill_spent(&c->money.bill, BILL_RESERVED, of->name, NULL, 0, &c->money.period);
        json_object(w);
        put_spent(w, BILL_RESERVED, of->name, of->reserved * of->price_h, &spent);
        json_object_end(w);
    }
    json_array_end(w);
}

void control_put_cost(struct json_writer *w, const struct control *c, int64_t now_us)
{
    double per_h = 0;
    json_key(w, "cost");
    json_object(w);
    json_kv_f64(w, "total", control_cost_total(c, now_us));
    json_kv_f64(w, "unsure", control_cost_unsure(c, now_us));
    put_bill(w, c);
    json_key(w, "services");
    json_array(w);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const double of_service = control_per_h(c, s, PLAN_NONE);
        per_h += of_service;
        json_object(w);
        json_kv_text(w, "service", c->desired.service[s].name);
        json_kv_f64(w, "per_h", of_service);
        const struct bill_spent spent = control_spent(c, s, NULL);
        json_kv_f64(w, "today", spent.day);
        json_kv_f64(w, "this_month", spent.month);
        json_kv_f64(w, "total", spent.total);
        json_object_end(w);
    }
    json_array_end(w);
    json_kv_f64(w, "per_h", per_h);
    json_object_end(w);
}

/* Holds the cost of a service, and the millions of tokens that tenants had it compute. */
struct service_sum {
    struct bill_spent spent;
    struct cost mtokens;
};

static struct cost mtokens_of(const struct tenant *t, const char *service,
                              const struct bill_periods *p)
{
    for (uint32_t i = 0; i < t->share_count; i++)
        if (strcmp(t->share[i].service, service) == 0) return cost_in(&t->share[i].mtokens, p);
    return (struct cost){ 0 };
}

static double part_of(double dollars, double mine, double all)
{
    return all > 0 ? dollars * mine / all : 0;
}

/* Returns the tenant's part of what a service has cost: its share of the tokens that the service computed for tenants.
 * Where no router has told whom it computed for, its share of all tokens. */
static struct cost cost_of_tenant(const struct service_sum *s, const struct cost *mine,
                                  const struct cost *of_all, const struct cost *all)
{
    bool day = s->mtokens.in_day > 0, month = s->mtokens.in_month > 0;
    return (struct cost){
        .in_day = day ? part_of(s->spent.day, mine->in_day, s->mtokens.in_day)
                      : part_of(s->spent.day, of_all->in_day, all->in_day),
        .in_month = month ? part_of(s->spent.month, mine->in_month, s->mtokens.in_month)
                          : part_of(s->spent.month, of_all->in_month, all->in_month),
    };
}

static void put_tenant_costs(struct json_writer *w, const struct control *c, const struct tenant *t,
                             const struct service_sum *sums, const struct cost *all)
{
    const struct bill_periods *p = &c->money.period;
    const struct cost m = cost_in(&t->mtokens, p);
    struct cost sum = { 0 };
    json_kv_f64(w, "mtokens_this_month", m.in_month);
    json_key(w, "services");
    json_array(w);
    for (uint32_t s = 0; s < c->setup.service_count; s++) {
        const struct cost mine = mtokens_of(t, c->desired.service[s].name, p);
        const struct cost part = cost_of_tenant(&sums[s], &mine, &m, all);
        sum.in_day += part.in_day;
        sum.in_month += part.in_month;
        json_object(w);
        json_kv_text(w, "service", c->desired.service[s].name);
        json_kv_f64(w, "mtokens_this_month", mine.in_month);
        json_kv_f64(w, "cost_today", part.in_day);
        json_kv_f64(w, "cost_this_month", part.in_month);
        json_object_end(w);
    }
    json_array_end(w);
    json_kv_f64(w, "cost_today", all->in_day > 0 ? sum.in_day : (double)NAN);
    json_kv_f64(w, "cost_this_month", all->in_month > 0 ? sum.in_month : (double)NAN);
}

void control_put_tenants(struct json_writer *w, const struct control *c)
{
    const struct bill_periods *p = &c->money.period;
    struct service_sum sums[PLAN_SERVICES_MAX] = { 0 };
    struct cost all = { 0 };
    for (uint32_t s = 0; s < c->setup.service_count; s++)
        sums[s].spent = control_spent(c, s, NULL);
    for (uint32_t i = 0; i < c->people.tenant_count; i++) {
        const struct cost one = cost_in(&c->people.tenant[i].mtokens, p);
        all.in_day += one.in_day;
        all.in_month += one.in_month;
        for (uint32_t s = 0; s < c->setup.service_count; s++) {
            const struct cost m = mtokens_of(&c->people.tenant[i], c->desired.service[s].name, p);
            sums[s].mtokens.in_day += m.in_day;
            sums[s].mtokens.in_month += m.in_month;
        }
    }
    json_key(w, "tenants");
    json_array(w);
    for (uint32_t i = 0; i < c->people.tenant_count; i++) {
        const struct tenant *t = &c->people.tenant[i];
        json_object(w);
        json_kv_text(w, "tenant", t->name);
        json_kv_u64(w, "requests_per_min", t->limits.requests_per_min);
        json_kv_u64(w, "tokens_per_min", t->limits.tokens_per_min);
        json_kv_u64(w, "concurrency", t->limits.concurrency);
        json_kv_f64(w, "weight", t->limits.weight > 0 ? t->limits.weight : 1);
        json_kv_i64(w, "created_us", t->created_us);
        json_kv_u64(w, "requests_total", t->usage.requests);
        json_kv_u64(w, "rejected_total", t->usage.rejected);
        json_kv_u64(w, "prompt_tokens_total", t->usage.prompt_tokens);
        json_kv_u64(w, "cached_tokens_total", t->usage.cached_tokens);
        json_kv_u64(w, "generated_tokens_total", t->usage.generated_tokens);
        put_tenant_costs(w, c, t, sums, &all);
        json_object_end(w);
    }
    json_array_end(w);
}
