// TLS: a certificate made here, a client that checks it.
#include <cstdlib>
#include <fstream>

#include "server/loopback.h"
#include "support/judge.h"

namespace zipage::testing_server {
namespace {

TEST(Tls, IsServed) {
  if (test::judges_are_off()) GTEST_SKIP() << "ZIPAGE_JUDGES=off";
  const test::TempFolder folder;
  const std::string command =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext "
      "subjectAltName=IP:127.0.0.1 -keyout '" +
      folder.file("key.pem") + "' -out '" + folder.file("cert.pem") + "' 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  ServerOptions options;
  options.ssl_certfile = folder.file("cert.pem");
  options.ssl_keyfile = folder.file("key.pem");
  Loopback loopback(options);
  std::ofstream(folder.file("port.txt")) << loopback.server->port();
  EXPECT_EQ(test::run_judge("server/judge_tls.py", folder), "");
  for (int i = 0; i < 500 && loopback.engine.stats().num_running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(loopback.engine.stats().num_running, 0);

  ServerOptions swapped = options;
  std::swap(swapped.ssl_certfile, swapped.ssl_keyfile);
  swapped.port = 0;
  EXPECT_THROW(server::Server{swapped}, std::runtime_error);
}

}  // namespace
}  // namespace zipage::testing_server
