/* An extension that runs a command by the C interface: what another library would write. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sandcore.h>

static const struct sandcore_api *api;

static PyObject *fail(int error)
{
    errno = -error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* run(writable, script) -> wait status */
static PyObject *run(PyObject *self, PyObject *arguments)
{
    const char *writable, *script;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "ss", &writable, &script)) {
        return NULL;
    }
    const struct sandcore_rule rules[] = {{writable, SANDCORE_WRITE, 0},
                                          {"/dev/null", SANDCORE_DEVICE, 0}};
    const struct sandcore_options options = {
        .size = sizeof options, .rules = rules, .rule_count = 2};
    const char *argv[] = {"/bin/sh", "-c", script, NULL}, *envp[] = {"PATH=/usr/bin:/bin", NULL};
    const struct sandcore_command command = {
        .size = sizeof command, .argv = argv, .envp = envp, .fds = {0, 1, 2}};
    struct sandcore_policy *policy;
    struct sandcore_failure failure;
    struct sandcore_ended ended;
    int32_t pid, pidfd;
    int error = api->policy_compile(&options, &policy);
    if (error) {
        return fail(error);
    }
    Py_BEGIN_ALLOW_THREADS;
    error = api->spawn(policy, &command, &pid, &pidfd, &failure);
    while (error == 0) {
        error = api->wait(pidfd, -1, &ended);
        error = error == -EINTR ? 0 : error;
    }
    Py_END_ALLOW_THREADS;
    api->policy_close(policy);
    if (error < 0) {
        return fail(error);
    }
    close(pidfd);
    return PyLong_FromLong(ended.status);
}

static PyMethodDef methods[] = {{"run", run, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "example", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_example(void)
{
    api = PyCapsule_Import(SANDCORE_CAPSULE, 0);
    if (api == NULL) {
        return NULL;
    }
    if (api->version != SANDCORE_API_VERSION) {
        PyErr_SetString(PyExc_ImportError, "another version of sandcore's C interface");
        return NULL;
    }
    return PyModule_Create(&module);
}
