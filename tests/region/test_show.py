from tatami.region.show import show, show_region
from tests.region import examples as ex


def test_gemm_reads_like_a_formula() -> None:
    text = show_region(ex.gemm())
    assert "region gemm (contraction)  m:M n:N | k:K" in text
    assert "acc[m, n] : fp32 = sum over k of A[m, k]*B[k, n]".replace("]*B", "] * B") in text
    assert "C : fp32[M, N] <- c2 as fp32" in text


def test_the_dump_names_inputs_and_outputs() -> None:
    text = show(ex.program_of(ex.softmax()))
    assert text.startswith("program main\n  input  X = X : fp32[M, N]\n  output Y = Y : fp32[M, N]\n")
