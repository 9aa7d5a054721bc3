#include <thread>
#include <mutex>
#include <condition_variable>
#include <vector>
#include <map>
#include <string>
#include <cstdio>
#include <iostream>
#include <unistd.h>
#include <pthread.h>
#include <stdexcept>
std::mutex m; std::recursive_mutex rm; std::condition_variable cv; int turn = 0; long total; std::map<int, std::string> table;
thread_local long mine;
void work(int id) {
    for (int i = 0; i < 300; i++) {
        std::unique_lock<std::mutex> l(m);
        cv.wait(l, [&] { return turn % 8 == id; });
        rm.lock(); rm.lock();
        mine += i * id; total += mine % 1000;
        table[total % 500] += std::to_string(mine);
        if (table[total % 500].size() > 100) table.erase(total % 500);
        try { if (total % 7 == 0) throw std::runtime_error("x"); } catch (std::exception &e) { total++; }
        volatile double z = 0; for (int k = 0; k < 100000; k++) z += k * 0.5;
        rm.unlock(); rm.unlock();
        turn++;
        if (id == 0 && i % 10 == 0) std::cout << i << " " << total << "\n";
        cv.notify_all();
    }
}
int main() {
    std::vector<std::thread> t;
    for (int i = 0; i < 8; i++) t.emplace_back(work, i);
    for (auto &x : t) x.join();
    std::cout << total << " " << table.size() << " " << getpid() * 0 << std::endl;
    return 3;
}
