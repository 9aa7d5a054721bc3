# needs: g++
set -e
cat > program.cc <<'EOF'
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
namespace fs = std::filesystem;
int main()
{
    std::ofstream log("log");
    for (int i = 0; i < 2000; i++)
        log << i << ' ' << i / 7.0 << '\n';
    log.flush();
    fs::create_directories("a/b/c");
    fs::copy_file("log", "a/b/copy");
    std::system("mark");
    std::fstream both("log", std::ios::in | std::ios::out);
    both.seekp(100) << "written over";
    both.seekg(50);
    std::string word;
    both >> word;
    std::cout << word << '\n';
    both.seekp(0, std::ios::end) << "the end\n" << std::flush;
    fs::resize_file("a/b/copy", 1000);
    fs::rename("a/b", "a/d");
    fs::create_symlink("../log", "a/link");
    fs::permissions("a/d/copy", fs::perms::owner_read);
    std::system("mark");
    log << "after\n" << std::flush;
    fs::copy("a", "e", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    std::cout << fs::remove_all("a") << ' ' << fs::file_size("log") << '\n';
    std::ofstream("log", std::ios::trunc) << "short";
    std::system("mark");
    std::error_code error;
    std::cout << fs::remove("e/d", error) << ' ' << error.message() << '\n';
}
EOF
g++ -std=c++17 -O1 program.cc -o program
./program
