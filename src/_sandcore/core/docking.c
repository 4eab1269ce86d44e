/* The caller's side of a dock; see client.h. */
#include "client.h"

#include "packet.h"

#include <errno.h>
#include <string.h>

/* The next answer. A negative errno when none came; what it says is in ready. */
static int hear_dock(struct client *client, struct wire_reply *ready, int *said)
{
    memset(ready, 0, sizeof *ready);
    *said = client_receive_ready(client->control, ready, NULL, 0);
    if (ready->kind != WIRE_READY) {
        return *said < 0 ? *said : -EPROTO;
    }
    client->docked++;
    return 0;
}

/* Takes answers that are there, and waits for some where many are not: a helper whose answers nobody
 * takes stops, and with it whoever asks. */
static int hear_docks(struct client *client)
{
    enum { OUTSTANDING = 32 };
    struct wire_reply ready;
    int error = 0, said;
    while (
        error == 0 && client->docked != client->docks &&
        (packet_await(client->control, 0) == 0 || client->docks - client->docked > OUTSTANDING)) {
        error = hear_dock(client, &ready, &said);
    }
    return error;
}

int client_dock(struct client *client, const void *blob, size_t size, const struct wire_dock *which)
{
    struct {
        struct wire_dock head;
        uint8_t blob[WIRE_MAX_DOCK];
    } order;
    if (size > sizeof order.blob) {
        return -E2BIG;
    }
    order.head = *which;
    order.head.kind = WIRE_DOCK;
    order.head.size = (uint32_t)size;
    if (size > 0) {
        memcpy(order.blob, blob, size);
    }
    int error = hear_docks(client);
    error = error ? error : packet_send(client->control, &order, sizeof order.head + size, NULL, 0);
    client->docks += error == 0;
    return error;
}

int client_await_dock(struct client *client, struct wire_reply *ready)
{
    int error = 0, said = 0;
    memset(ready, 0, sizeof *ready);
    while (error == 0 && client->docked != client->docks) {
        error = hear_dock(client, ready, &said);
    }
    return error ? error : said;
}
