/* dmtcp.h - as much of DMTCP's documented plugin interface as examples/engines/metamori_dmtcp.c uses. */
#ifndef DMTCP_H
#define DMTCP_H

#define DMTCP_PLUGIN_API_VERSION "4"
#define DMTCP_PACKAGE_VERSION "none"

typedef enum { DMTCP_EVENT_INIT, DMTCP_EVENT_PRECHECKPOINT, DMTCP_EVENT_RESUME, DMTCP_EVENT_RESTART } DmtcpEvent_t;
typedef union { int nothing; } DmtcpEventData_t;
typedef struct {
    const char *pluginApiVersion, *dmtcpVersion, *pluginName, *authorName, *authorEmail, *description;
    void (*event_hook)(DmtcpEvent_t event, DmtcpEventData_t *data);
} DmtcpPluginDescriptor_t;

void dmtcp_register_plugin(DmtcpPluginDescriptor_t plugin);
int dmtcp_global_barrier(const char *name);

#endif
