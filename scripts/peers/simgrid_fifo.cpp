// The jobs as actors of SimGrid in C++, with a semaphore for the GPUs. Arguments: the jobs, the answer (see protocol.py).
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <simgrid/s4u.hpp>
#include <vector>

namespace sg4 = simgrid::s4u;

static std::vector<double> numbers(const char* path)
{
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<double> all(static_cast<size_t>(file.tellg()) / sizeof(double));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(double)));
  return all;
}

int main(int argc, char* argv[])
{
  sg4::Engine engine(&argc, argv);
  const auto all     = numbers(argv[1]);
  const size_t count = (all.size() - 1) / 2;
  std::vector<double> ends(count);
  auto* zone = sg4::create_full_zone("world");
  auto* host = zone->create_host("node", 1e9);
  host->seal();
  zone->seal();
  auto gpus = sg4::Semaphore::create(static_cast<unsigned int>(all[0]));

  const std::clock_t began = std::clock();
  sg4::Actor::create("arrivals", host, [&] {
    for (size_t job = 0; job < count; ++job) {
      sg4::this_actor::sleep_until(all[1 + job]);
      sg4::Actor::create("job", host, [&, job] {
        gpus->acquire();
        sg4::this_actor::sleep_for(all[1 + count + job]);
        gpus->release();
        ends[job] = sg4::Engine::get_clock();
      });
    }
  });
  engine.run();
  const double cpu_s = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;

  std::ofstream out(argv[2]);
  out << std::setprecision(17) << "{\"cpu_s\": " << cpu_s << ", \"ends\": [";
  for (size_t job = 0; job < count; ++job)
    out << (job ? ", " : "") << ends[job];
  out << "]}";
  return 0;
}
