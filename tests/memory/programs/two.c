/* Two checkpoints of next to nothing: a complete image and one that counts from it, as small as they come. */
#include <metamori.h>

static volatile int taken;

int main(void)
{
    taken = metamori_checkpoint();
    taken = metamori_checkpoint();
    return 7;
}
