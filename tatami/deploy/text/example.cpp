// The model of this folder from C++: a class that owns it, and one run with every open axis 1.
//
//     c++ -std=c++17 example.cpp libmodel.* -lm -pthread -Wl,-rpath,'$ORIGIN' -o example_cpp && ./example_cpp
#include <cstdint>
#include <iostream>
#include <new>
#include <stdexcept>
#include <vector>

#include "model.h"

namespace {

void check(tatami_model_status status) {
    if (status != TATAMI_MODEL_OK) throw std::runtime_error(tatami_model_message());
}

class Model {
public:
    explicit Model(const char* constants, int threads = 0) { check(tatami_model_create(constants, threads, &model_)); }
    ~Model() { tatami_model_destroy(model_); }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    // The shape of each output for inputs of these shapes.
    std::vector<std::vector<std::int64_t>> shapes(const std::vector<tatami_model_buffer>& inputs) const {
        std::vector<std::vector<std::int64_t>> found;
        std::vector<std::int64_t*> room;
        for (int k = 0; k < tatami_model_output_count(); k++) found.emplace_back(tatami_model_output(k)->rank + 1);
        for (auto& shape : found) room.push_back(shape.data());
        check(tatami_model_shapes(model_, inputs.data(), room.data()));
        for (auto& shape : found) shape.pop_back();
        return found;
    }

    void run(const std::vector<tatami_model_buffer>& inputs, const std::vector<tatami_model_buffer>& outputs) {
        check(tatami_model_run(model_, inputs.data(), outputs.data()));
    }

private:
    tatami_model* model_ = nullptr;
};

// Memory of an array, aligned as any port may ask for.
class Array {
public:
    Array(std::vector<std::int64_t> shape, int element_bytes) : shape_(std::move(shape)), bytes_(element_bytes) {
        for (auto size : shape_) bytes_ *= size;
        data_ = ::operator new(static_cast<std::size_t>(bytes_) + 1, std::align_val_t{4096});
        std::fill_n(static_cast<unsigned char*>(data_), bytes_, static_cast<unsigned char>(0));
    }
    ~Array() { ::operator delete(data_, std::align_val_t{4096}); }
    Array(Array&& other) noexcept : shape_(std::move(other.shape_)), bytes_(other.bytes_), data_(other.data_) { other.data_ = nullptr; }
    Array& operator=(Array&&) = delete;

    tatami_model_buffer buffer() const { return {data_, shape_.data(), bytes_}; }
    template <class T> const T* as() const { return static_cast<const T*>(data_); }

private:
    std::vector<std::int64_t> shape_;
    std::int64_t bytes_;
    void* data_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) try {
    Model model(argc > 1 ? argv[1] : "constants.bin");
    std::vector<Array> arrays;
    std::vector<tatami_model_buffer> in, out;
    for (int k = 0; k < tatami_model_input_count(); k++) {
        const tatami_model_port* port = tatami_model_input(k);
        std::vector<std::int64_t> shape(port->shape, port->shape + port->rank);
        for (auto& size : shape) size = size == TATAMI_MODEL_OPEN ? 1 : size;
        arrays.emplace_back(shape, port->element_bytes);
    }
    for (auto& array : arrays) in.push_back(array.buffer());
    auto shapes = model.shapes(in);
    std::vector<Array> results;
    for (int k = 0; k < tatami_model_output_count(); k++) results.emplace_back(shapes[k], tatami_model_output(k)->element_bytes);
    for (int k = 0; k < tatami_model_output_count(); k++) {
        bool in_place = tatami_model_output(k)->updates >= 0;
        out.push_back(in_place ? tatami_model_buffer{nullptr, nullptr, 0} : results[k].buffer());
    }
    model.run(in, out);
    for (int k = 0; k < tatami_model_output_count(); k++) {
        std::cout << tatami_model_output(k)->name << ": " << out[k].bytes << " bytes";
        if (tatami_model_output(k)->dtype == TATAMI_MODEL_FP32 && out[k].bytes > 0) std::cout << ", first " << results[k].as<float>()[0];
        std::cout << "\n";
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
}
