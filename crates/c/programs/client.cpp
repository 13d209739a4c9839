// A client in C++: what is to be freed is held by unique_ptr.
//
//     client HOST:PORT WORD...
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tailcut.h"

namespace {

template <auto release>
struct Freed {
    template <typename T>
    void operator()(T *pointer) const {
        release(pointer);
    }
};

using Client = std::unique_ptr<tailcut_client, Freed<tailcut_client_free>>;
using Reply = std::unique_ptr<tailcut_reply, Freed<tailcut_reply_free>>;

void check(tailcut_code code) {
    if (code != TAILCUT_CODE_OK) throw std::runtime_error(tailcut_last_error());
}

Client open(const char *target) {
    tailcut_client_options options{};
    options.timeout_ns = 30'000'000'000;
    tailcut_client *client = nullptr;
    check(tailcut_client_open(target, &options, &client));
    return Client(client);
}

std::string call(const Client &client, std::string_view request) {
    tailcut_reply *reply = nullptr;
    check(tailcut_call(client.get(), reinterpret_cast<const std::uint8_t *>(request.data()),
                       request.size(), nullptr, &reply));
    Reply held(reply);
    std::size_t len = 0;
    const std::uint8_t *bytes = tailcut_reply_bytes(held.get(), &len);
    return std::string(reinterpret_cast<const char *>(bytes), len);
}

}  // namespace

int main(int argc, char **argv) try {
    if (argc < 2) throw std::runtime_error("client HOST:PORT WORD...");
    Client client = open(argv[1]);
    for (int i = 2; i < argc; i++) {
        std::cout << argv[i] << " -> " << call(client, argv[i]) << "\n";
    }
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
