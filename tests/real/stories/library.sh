# needs: gcc python3
# Shared libraries that the run itself has built are loaded at once: by a program linked with one, by dlopen, as a Python module.
set -e
cat > answer.c <<'C'
int answer(void) { return VALUE; }
C
cat > asks.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int answer(void);
int main(void)
{
    void *again = dlopen("./plugin.so", RTLD_NOW);
    int (*plugged)(void) = again ? (int (*)(void))dlsym(again, "answer") : 0;
    printf("%d %d\n", answer(), plugged ? plugged() : -1);
    return !plugged;
}
C
cat > module.c <<'C'
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(VALUE); }
static PyMethodDef all[] = {{"answer", answer, METH_NOARGS, 0}, {0}};
static struct PyModuleDef what = {PyModuleDef_HEAD_INIT, "module", 0, -1, all};
PyMODINIT_FUNC PyInit_module(void) { return PyModule_Create(&what); }
C
python=$(command -v python3)
headers=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
for value in 41 42; do
    gcc -w -shared -fPIC -DVALUE=$value answer.c -o libanswer.so
    gcc -w -shared -fPIC -DVALUE=$((value + 100)) answer.c -o built.so
    [ -e plugin.so ] || : > plugin.so
    cat built.so > plugin.so                   # in place: the old file goes on
    gcc -w asks.c -o asks -L. -lanswer -Wl,-rpath,.
    ./asks
    if [ -e "$headers/Python.h" ]; then
        gcc -w -shared -fPIC -DVALUE=$((value + 200)) -I"$headers" module.c -o module.so
        $python -B -c 'import module; print(module.answer())'
    fi
    mark
done
