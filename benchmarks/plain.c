/* The two cases that the compiled engine is held against, in plain C: each written for itself, with nothing
 * beyond what the case needs.
 *
 *   plain async WORKERS STEPS BYTES BANDWIDTH COMPUTE HOST SEED
 *       workers pull BYTES from one server, compute an exponential time of mean COMPUTE seconds and push BYTES,
 *       until WORKERS x STEPS updates are applied; the server's link carries BANDWIDTH bytes/s in each direction,
 *       shared equally by those who pull, or push; each message takes HOST seconds of the host that sends it, then of
 *       the one that it comes to, which do one after the other; prints updates/s and mean staleness
 *   plain ring RANKS STEPS BYTES BANDWIDTH LATENCY COMPUTE SIGMA SEED
 *       ranks compute COMPUTE seconds times a lognormal factor of median 1, then all-reduce BYTES around a ring,
 *       message by message, LATENCY seconds each; prints how many messages there were and when the last rank ended
 *
 * Each prints one JSON object, with the CPU time of the simulation alone and the number of entries of its calendar.
 * Built and run by plain_c.py.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -- a heap of what comes at which time, or at which reading of a clock; equal ones first come, first served -------- */

typedef struct {
    double key;
    uint32_t serial;
    int32_t what;
} Entry;

typedef struct {
    Entry *at;
    size_t count, room;
} Heap;

static void *room_for(void *old, size_t bytes)
{
    void *space = realloc(old, bytes);
    if (space == NULL) {
        fputs("plain: out of memory\n", stderr);
        exit(1);
    }
    return space;
}

static inline int before(Entry a, Entry b)
{
    return a.key < b.key || (a.key == b.key && a.serial < b.serial);
}

static inline void heap_push(Heap *heap, Entry entry)
{
    if (heap->count == heap->room) {
        heap->room = heap->room ? 2 * heap->room : 1024;
        heap->at = room_for(heap->at, heap->room * sizeof(Entry));
    }
    size_t place = heap->count++;
    Entry *at = heap->at;
    while (place > 0) {
        size_t parent = (place - 1) / 2;
        if (!before(entry, at[parent]))
            break;
        at[place] = at[parent];
        place = parent;
    }
    at[place] = entry;
}

static inline Entry heap_pop(Heap *heap)
{
    Entry *at = heap->at, first = at[0], last = at[--heap->count];
    size_t count = heap->count, place = 0;
    for (size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && before(at[child + 1], at[child]))
            child++;
        if (!before(at[child], last))
            break;
        at[place] = at[child];
        place = child;
    }
    at[place] = last;
    return first;
}

/* -- the calendar, and draws ----------------------------------------------------------------------------------------- */

static Heap calendar;
static double now;
static uint32_t events;

static inline uint32_t at_time(double time, int32_t what)
{
    heap_push(&calendar, (Entry){time, ++events, what});
    return events;
}

static uint64_t state[4];

static uint64_t splitmix(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t rotated(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

/* in (0, 1]: xoshiro256++ (Blackman and Vigna, 2019) */
static inline double uniform(void)
{
    uint64_t drawn = rotated(state[0] + state[3], 23) + state[0], t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotated(state[3], 45);
    return (double)((drawn >> 11) + 1) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* -- asynchronous workers of one server ----------------------------------------------------------------------------- */

/* one direction of the server's link: its clock counts the bytes that each connection has been given so far */
typedef struct {
    double clock, updated, bandwidth;
    Heap ends;
    uint32_t timer;
    int32_t name;
} Port;

static inline void catch_up(Port *port)
{
    if (port->ends.count > 0)
        port->clock += (now - port->updated) * port->bandwidth / (double)port->ends.count;
    port->updated = now;
}

/* note when its next message ends; the wake-up before counts no longer */
static inline void arm(Port *port)
{
    if (port->ends.count == 0)
        return;
    double left = port->ends.at[0].key - port->clock;
    port->timer = at_time(now + (left > 0 ? left : 0) * (double)port->ends.count / port->bandwidth, port->name);
}

static inline void begin(Port *port, double bytes, int32_t worker)
{
    static uint32_t serial;
    catch_up(port);
    heap_push(&port->ends, (Entry){port->clock + bytes, ++serial, worker});
    arm(port);
}

/* what the server's host has still to do, in order: to send to a worker, or to take what has come from one */
typedef struct {
    int32_t *jobs;
    uint32_t first, count, room; /* a power of two */
    double each_s;
    int32_t name;
} Host;

enum { TAKE, SEND };

static inline void queue_up(Host *host, int32_t worker, int kind)
{
    if (host->count == 0)
        at_time(now + host->each_s, host->name);
    host->jobs[(host->first + host->count++) & (host->room - 1)] = 2 * worker + kind;
}

static inline int32_t next_done(Host *host)
{
    int32_t job = host->jobs[host->first++ & (host->room - 1)];
    if (--host->count > 0)
        at_time(now + host->each_s, host->name);
    return job;
}

static void async(char **given)
{
    const int32_t workers = atoi(given[0]);
    const uint64_t total = (uint64_t)workers * strtoull(given[1], NULL, 10);
    const double bytes = atof(given[2]), bandwidth = atof(given[3]), compute = atof(given[4]);
    enum { DOWN = -1, UP = -2, HOST = -3 };
    Host host = {.room = 1, .each_s = atof(given[5]), .name = HOST};
    while (host.room < 2 * (uint32_t)workers)
        host.room *= 2;
    host.jobs = room_for(NULL, host.room * sizeof *host.jobs);
    const int costs = host.each_s > 0;
    Port down = {.bandwidth = bandwidth, .name = DOWN}, up = {.bandwidth = bandwidth, .name = UP};
    uint64_t version = 0, *read = room_for(NULL, (size_t)workers * sizeof *read);
    double stale = 0;
    clock_t begun = clock();

    for (int32_t worker = 0; worker < workers; worker++) {
        read[worker] = 0;
        if (costs)
            queue_up(&host, worker, SEND);
        else
            begin(&down, bytes, worker);
    }
    while (version < total) {
        Entry event = heap_pop(&calendar);
        now = event.key;
        if (event.what >= 0) {
            begin(&up, bytes, event.what);
            continue;
        }
        if (event.what == HOST) {
            int32_t job = next_done(&host), worker = job / 2;
            if (job % 2 == SEND) {
                begin(&down, bytes, worker);
            } else {
                stale += (double)(version++ - read[worker]);
                read[worker] = version;
                queue_up(&host, worker, SEND);
            }
            continue;
        }
        Port *port = event.what == DOWN ? &down : &up;
        if (event.serial != port->timer)
            continue;
        /* set, not added up: then the front has ended whatever the rounding */
        port->clock = port->ends.at[0].key;
        port->updated = now;
        do {
            int32_t worker = heap_pop(&port->ends).what;
            if (port == &down) {
                /* a worker's host has nothing else to do meanwhile */
                at_time(now + 2 * host.each_s - compute * log(uniform()), worker);
            } else if (costs) {
                queue_up(&host, worker, TAKE);
            } else {
                stale += (double)(version++ - read[worker]);
                if (version == total)
                    break;
                read[worker] = version;
                begin(&down, bytes, worker);
            }
        } while (port->ends.count > 0 && port->ends.at[0].key <= port->clock * (1 + 1e-12));
        arm(port);
    }
    double cpu = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("{\"worker_steps\": %llu, \"cpu_s\": %.6f, \"events\": %u, \"updates_per_s\": %.9g, \"staleness\": %.9g}\n",
           (unsigned long long)total, cpu, events, (double)version / now, stale / (double)version);
}

/* -- a ring of ranks, message by message ------------------------------------------------------------------------------ */

typedef struct {
    int64_t may, sent, came; /* messages of the steps that it has begun; of all steps: sent, received */
    int32_t steps;
    char sending, receiving; /* whether its port out, or in, carries a message */
} Rank;

static void ring(char **given)
{
    const int32_t ranks = atoi(given[0]), steps = atoi(given[1]);
    const double bytes = atof(given[2]), bandwidth = atof(given[3]), latency = atof(given[4]);
    const double compute = atof(given[5]), sigma = atof(given[6]);
    const int64_t rounds = 2 * ((int64_t)ranks - 1);
    const double chunk_s = bytes / ranks / bandwidth;
    enum { SENT, CAME, COMPUTED };
    Rank *all = room_for(NULL, (size_t)ranks * sizeof *all);
    memset(all, 0, (size_t)ranks * sizeof *all);
    double ended = 0;
    clock_t begun = clock();

    for (int32_t rank = 0; rank < ranks; rank++)
        at_time(compute * exp(sigma * normal()), 3 * rank + COMPUTED);
    while (calendar.count > 0) {
        Entry event = heap_pop(&calendar);
        now = event.key;
        int32_t number = event.what / 3, following = number + 1 == ranks ? 0 : number + 1;
        Rank *rank = &all[number];
        switch (event.what % 3) {
        case SENT:
            rank->sent++;
            rank->sending = all[following].receiving = 0;
            at_time(now + latency, 3 * following + CAME);
            break;
        case CAME:
            rank->came++;
            break;
        case COMPUTED:
            rank->may += rounds;
            break;
        }
        if (rank->sent < rank->may) {
            /* all but the first message of a step pass on what the one before brought */
            int64_t needed = rank->sent % rounds ? rank->sent : 0;
            if (!rank->sending && rank->came >= needed) {
                /* a rank hears from one other alone, so no message shares its ports: each has their bandwidth */
                if (all[following].receiving)
                    abort();
                rank->sending = all[following].receiving = 1;
                at_time(now + chunk_s, 3 * number + SENT);
            }
        } else if (rank->may > 0 && rank->came >= rank->may && rank->steps < rank->may / rounds) {
            ended = now;
            if (++rank->steps < steps)
                at_time(now + compute * exp(sigma * normal()), 3 * number + COMPUTED);
        }
    }
    for (int32_t rank = 0; rank < ranks; rank++)
        if (all[rank].steps != steps)
            abort();
    double cpu = (double)(clock() - begun) / CLOCKS_PER_SEC;
    printf("{\"messages\": %lld, \"cpu_s\": %.6f, \"events\": %u, \"end_s\": %.17g}\n", (long long)(rounds * ranks * steps), cpu, events,
           ended);
}

int main(int count, char **given)
{
    int is_async = count == 9 && strcmp(given[1], "async") == 0;
    int is_ring = count == 10 && strcmp(given[1], "ring") == 0;
    if (!is_async && !is_ring) {
        fputs("plain: async WORKERS STEPS BYTES BANDWIDTH COMPUTE HOST SEED | ring RANKS STEPS BYTES BANDWIDTH LATENCY COMPUTE SIGMA SEED\n",
              stderr);
        return 2;
    }
    uint64_t seed = strtoull(given[count - 1], NULL, 10);
    for (int i = 0; i < 4; i++)
        state[i] = splitmix(&seed);
    if (is_async)
        async(given + 2);
    else
        ring(given + 2);
    return 0;
}
