"""The command line. A wrong input results in a diagnostic and exit code 1, never in a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tatami.cli.terminal import keep_diagnostics, show_diagnostics

if TYPE_CHECKING:
    from tatami.cli.request import Request

TUTORIAL = """Tatami: a deep-learning compiler whose every stage is a document.

\b
  tatami run model.onnx --check           compile, run on generated inputs, compare with the reference
  tatami run model.onnx --input image=photo.npy --output out.npz
  tatami compile model.onnx -o out --dump=all
                                          every stage as text and JSON, and the generated C
  tatami compile model.onnx -o model.tatami
                                          one file that loads at once: a MODEL, and for tt.load
  tatami compile model.onnx -o lib --library
                                          a C library and header that run without Python; or --wheel NAME
  tatami run out/6_region.json --check    go on from any stage of a dump
  tatami playback model.onnx              run every stage that computes; name the first that differs
  tatami bench model.onnx -D B=32         time and roofline per kernel
  tatami tune model.onnx --budget 10m -o tuned.json
                                          measure other plans than the compiler's; run --decisions tuned.json
  tatami explain model.onnx               what was fused, what was not, and why
  tatami diff before after                two dumps, compared by node
  tatami report model.onnx                one file to attach to a report of a fault, without the weights
  tatami explore model.onnx               one page for a browser: every stage, linked from the model to the C
  tatami calibrate                        measure this machine anew: plans of target cpu are made by its rates
  tatami check model.harp                 all that is wrong with a text, with line and column
  tatami check model.onnx                 all that onnx.checker finds, and what an import repairs
  tatami fmt model.harp                   lay it out; --check only looks
  tatami decompile model.onnx             write model.harp, large constants in model.npz
  tatami gradient model.onnx --wrt W      write model.gradient.harp: the model and the derivative by W
  tatami quantize model.onnx -o small.onnx --mode int4
                                          weights of 4 or 8 bits, as standard ONNX
  tatami generate model.gguf -p "Once" -n 64
                                          text after a prompt, as it comes
  tatami serve model.gguf                 an OpenAI-compatible server on 127.0.0.1

\b
MODEL is .harp, .onnx, .gguf, .json (a document of any stage), .tatami (f.save), or the folder of a dump. The chain:
frontend, tiny, indexbook, poly_view, region, poly_core, plan, loop | gpu, execution, c | cu.

Environment: TATAMI_NUM_THREADS, OMP_NUM_THREADS, TATAMI_LOG (debug, info), TATAMI_CACHE_DIR, TATAMI_LEDGER, TATAMI_PROGRAM_CACHE=0 (compile anew),
TATAMI_CALIBRATE=0 (plan by the usual rates of the instruction set), TATAMI_SANITIZE (docs/custom_kernels.md).
"""
"""The text of `tatami --help`."""


TARGETS = """Default: cpu, or what a document was made for. cpu (this machine), cpu:generic, cpu:avx2, cpu:avx512, cpu:neon; cuda (this machine's GPU); code for a GPU:
sm80, sm90, a100, a100-40gb, h100, h100-pcie, h200, rtx3090, rtx4090; the same run on the CPU: emulated-sm80, emulated-sm90
(or another GPU's name); reference; or a .json file of `tatami calibrate -o`"""
"""The help text of the option --target."""


def common(command: Callable[..., object]) -> Callable[..., None]:
    """The options that every command on a model takes."""

    @click.argument("model")
    @click.option("--target", help=TARGETS)
    @click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="value of a size symbol, e.g. -D B=32")
    @click.option(
        "--precision",
        type=click.Choice(["fp32", "tf32", "bf16", "bf16!", "fp16", "int8"]),
        help="lower contractions to this precision",
    )
    @click.option("--decisions", type=click.Path(), help="a decisions or plan document to obey")
    @click.option("--trust", is_flag=True, help="accept documents that carry code")
    @refusing
    @wraps(command)
    def defined(
        model: str,
        target: str | None,
        defines: tuple[str, ...],
        precision: str | None,
        decisions: str | None,
        trust: bool,
        **options: object,
    ) -> None:
        from tatami.cli.request import Request

        command(Request(model, target, parse_defines(defines), precision, decisions, trust), **options)

    return defined


def refusing(command: Callable[..., object]) -> Callable[..., None]:
    """The command with errors turned into text and an exit code."""

    @wraps(command)
    def guarded(**options: object) -> None:
        from tatami.cli.interrupts import ended_by_signals
        from tatami.core.diagnostic import TatamiError, diagnostic

        def say_interrupted() -> None:
            show_diagnostics(
                [diagnostic("Interrupted", "command", "interrupted", "run it again; nothing was left half-written")]
            )

        try:
            with ended_by_signals(say_interrupted):
                command(**options)
        except TatamiError as error:
            show_diagnostics(error.diagnostics)
            sys.exit(1)
        except (click.ClickException, click.exceptions.Exit):
            raise  # options that do not go together: click prints the usage and exits with 2
        except KeyboardInterrupt:
            say_interrupted()
            sys.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except RecursionError:
            deep = diagnostic(
                "InputTooLarge", "command", "the model is nested too deeply", "flatten its control flow or expressions"
            )
            show_diagnostics([deep])
            sys.exit(1)
        except MemoryError:
            show_diagnostics([diagnostic("OutOfMemory", "command", "the machine has no more memory", "use smaller sizes (-D)")])
            sys.exit(1)
        except Exception as error:
            if os.environ.get("TATAMI_LOG"):
                raise
            from tatami.core.faults.internal_fault import internal_fault

            show_diagnostics([internal_fault("command", error)])
            sys.exit(1)

    return guarded


def parse_defines(defines: tuple[str, ...]) -> dict[str, int]:
    """Size symbol -> value from texts ``B=32``. Raises InvalidSymbol."""
    from tatami.core.diagnostic import fail

    out: dict[str, int] = {}
    for text in defines:
        name, _, value = text.partition("=")
        if not name or not (value.isascii() and value.isdigit()) or len(value) > 18:
            raise fail("InvalidSymbol", f"-D {text[:80]}", "a size is a name and an integer from 0 to 10^18", "write -D B=32")
        out[name] = int(value)
    return out


@click.group(help=TUTORIAL, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="tatami")
@click.option(
    "--diagnostics",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="before the command: diagnostics on stderr as text, or as one JSON list at its end",
)
@click.pass_context
def main(context: click.Context, diagnostics: str) -> None:
    """The command `tatami`; SIGTERM ends it with exit code 143."""
    if diagnostics == "json":
        keep_diagnostics(context)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@main.command(short_help="compile and run")
@common
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE.npy|shape:2x3", help="an input; others are generated (seed 0)"
)
@click.option("--output", type=click.Path(), help="write the outputs to this .npz")
@click.option(
    "--fetch", "fetch_names", multiple=True, metavar="NAME", help="also show the value of this node (any stage's id or name)"
)
@click.option("--check", is_flag=True, help="compare every output with the float64 reference")
def run(request: Request, inputs: tuple[str, ...], output: str | None, fetch_names: tuple[str, ...], check: bool) -> None:
    """Compile MODEL and run it once."""
    from tatami.cli.run_commands import run_command

    run_command(request, inputs, output, fetch_names, check)


@main.command(name="compile", short_help="compile; write a program, or code and dumps")
@common
@click.option(
    "-o", "--output", default="tatami-out", show_default=True, type=click.Path(), help="folder to write, or a file name.tatami"
)
@click.option("--dump", default="", metavar="STAGE,...|all", help="stages to write as documents and text")
@click.option("--embed", is_flag=True, help="documents, or a library, that need no other file")
@click.option(
    "--library", is_flag=True, help="a C library that runs without Python: libmodel.so, model.h, constants.bin, examples"
)
@click.option("--static", is_flag=True, help="with --library: an archive, libmodel.a")
@click.option("--wheel", metavar="NAME[==VERSION]", help="a Python package of this model alone, which needs numpy only")
@click.option("--libc", type=click.Choice(["gnu", "musl"]), help="C library of --library or --wheel, linked by zig")
def compile_(request: Request, output: str, **forms: object) -> None:
    """Compile MODEL. Into a folder: the generated code, a stand-alone main, and dumps. Into a .tatami file: the program, as
    tt.load and every command take it. With --library or --wheel: what runs where Tatami is not installed."""
    from msgspec import convert

    from tatami.cli.compile_command import Forms, compile_command

    compile_command(request, output, convert(forms, Forms))


@main.command(short_help="compare all stages on the same inputs")
@common
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy|shape:2x3")
def playback(request: Request, inputs: tuple[str, ...]) -> None:
    """Run every stage that computes on the same inputs; name the first stage and element that differ."""
    from tatami.cli.run_commands import playback_command

    playback_command(request, inputs)


@main.command(short_help="time and roofline per kernel; counts on an emulated GPU")
@common
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy|shape:2x3")
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="default: TATAMI_NUM_THREADS, else OMP_NUM_THREADS, else all cores"
)
@click.option("--seconds", type=click.FloatRange(0, 600), help="how long to measure; default: 1")
@click.option("--ledger", type=click.Path(), help="the ledger to add to; default: that of the user")
@click.option("--svg", type=click.Path(), help="draw the kernels under the machine's roofline")
@click.option("--trace", type=click.Path(), help="write the waves as a trace that Perfetto and Chrome open")
def bench(request: Request, **options: object) -> None:
    """Time each kernel of MODEL on this machine, next to the plan's estimate and the bound by the machine's measured peaks.

    On an emulated GPU nothing is timed: the instructions of each role of warps are counted, with their bytes of shared and
    global memory and bank conflicts, and compared with what the simulation of the kernel was given."""
    import msgspec

    from tatami.cli.run_commands import Benching, bench_command

    bench_command(request, msgspec.convert(options, Benching))


@main.command(short_help="search for better plans by measuring")
@common
@click.option("--budget", default="10m", show_default=True, metavar="TIME", help="how long to search: 90s, 10m, 2h")
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="default: TATAMI_NUM_THREADS, else OMP_NUM_THREADS, else all cores"
)
@click.option("--sizes", multiple=True, metavar="NAME=1,16,512", help="several values of an open size, each tuned for itself")
@click.option("--learned", is_flag=True, help="order candidates by estimates that the ledger corrects (extra tune)")
@click.option("--ray", metavar="ADDRESS", help="measure on the nodes of a Ray cluster like this machine (extra ray)")
@click.option("-o", "--output", default="tuned.json", show_default=True, type=click.Path(), help="decisions document to write")
@click.option("--report", type=click.Path(), metavar="FILE.html", help="also write a page about the search")
@click.option("--ledger", type=click.Path(), help="the ledger of measurements; default: that of the user")
def tune(request: Request, **options: object) -> None:
    """Measure other plans for the kernels of MODEL than the compiler chose, at the sizes given with -D and --sizes, and write
    those that are faster as decisions. Every candidate is compared with the float64 reference before it is timed. Ctrl-C keeps
    what was found; started again, the search goes on, and measures nothing twice."""
    import msgspec

    from tatami.cli.tune_command import Tuning, tune_command

    tune_command(request, msgspec.convert(options, Tuning))


@main.group(short_help="measurements of this machine")
def ledger() -> None:
    """The ledger: measurements of `tatami tune` and `tatami bench`."""


LEDGER = click.option("--ledger", "path", type=click.Path(), help="the ledger; default: that of the user")
"""The option of every command on the ledger."""


@ledger.command(name="list")
@LEDGER
@refusing
def list_(path: str | None) -> None:
    """A line for each kernel that was searched: candidates, times, and the best."""
    from tatami.cli.tune_command import list_command

    list_command(path)


@ledger.command()
@LEDGER
@click.option("--searches", is_flag=True, help="the candidates of searches instead of the kernels of `tatami bench`")
@click.option("-o", "--output", type=click.Path(), help="file to write; default: standard output")
@refusing
def export(path: str | None, searches: bool, output: str | None) -> None:
    """Print the ledger as CSV: kernels of `tatami bench`, or candidates of searches."""
    from tatami.cli.tune_command import export_command

    export_command(path, "candidates" if searches else "kernels", output)


@ledger.command()
@LEDGER
@click.argument("files", nargs=-1, required=True)
@refusing
def merge(path: str | None, files: tuple[str, ...]) -> None:
    """Take over the rows of the ledgers FILES of other machines. Measurements hold for machines alike: same instructions, caches
    and cores."""
    from tatami.cli.tune_command import merge_command

    merge_command(path, files)


@ledger.command()
@LEDGER
@click.option("--target", help="the CPU target whose timings are learned from; default: this machine")
@refusing
def learn(path: str | None, target: str | None) -> None:
    """Learn a correction of the cost model from the candidates that were timed, and print how well it orders those of Regions that
    it has not seen, next to the plain estimates. `tatami tune --learned` uses it."""
    from tatami.cli.tune_command import learn_command

    learn_command(path, target or "cpu")


@ledger.command()
@click.option("--target", help="the CPU target; default: this machine")
@refusing
def machine(target: str | None) -> None:
    """Print the resource by which `tatami tune --ray` finds machines like this one, for `ray start --resources`: those of the same
    instructions, caches, cores and C compiler."""
    from tatami.cli.tune_command import machine_command

    machine_command(target or "cpu")


@ledger.command()
@LEDGER
@click.option("--older", type=click.IntRange(0), metavar="DAYS", help="also remove what is older")
@refusing
def prune(path: str | None, older: int | None) -> None:
    """Remove measurements of other versions of Tatami, which no search uses."""
    from tatami.cli.tune_command import prune_command

    prune_command(path, older)


@main.command(short_help="decisions of the compiler, with reasons")
@common
@click.option("--svg", type=click.Path(), metavar="FILE", help="also draw the model, the operations of a kernel in one frame")
@click.option("--dot", type=click.Path(), metavar="FILE", help="the same drawing as DOT text")
@click.option("--candidates", is_flag=True, help="instead: every plan that each kernel may have, with its estimate or refusal")
@click.option("--tree", is_flag=True, help="print a tree: kernels, their plans, and the edges inside and between them")
@click.option("--json", "as_json", is_flag=True, help="print the report, or the candidates, as JSON")
def explain(request: Request, **views: object) -> None:
    """Fused and not fused, with the rule and the gain; plans chosen and rejected; copies and host steps."""
    from msgspec import convert

    from tatami.cli.explain_command import Views, explain_command

    explain_command(request, convert(views, Views))


@main.command(short_help="compare two dumps by node")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="print the differences as a JSON list")
@refusing
def diff(before: str, after: str, as_json: bool) -> None:
    """Compare two dumps, folders or documents of one stage: nodes added, removed and changed, whatever their names are. Exit code
    1 if there are differences."""
    from tatami.cli.diff_command import diff_command

    diff_command(Path(before), Path(after), as_json)


@main.command(short_help="one file with all that a report of a fault needs")
@common
@click.option("-o", "--output", default="tatami-report.zip", show_default=True, type=click.Path(), help="file to write")
def report(request: Request, output: str) -> None:
    """Pack into one file what a fault of MODEL needs to be understood: versions, target, every stage, diagnostics and playback. The
    weights are left out; names and shapes of the model are in it."""
    from tatami.cli.report_command import report_command

    report_command(request, Path(output))


@main.command(short_help="see the whole compilation in a browser")
@common
@click.option(
    "-o", "--output", type=click.Path(), metavar="FILE.html", help="page to write; default: the model's name with .html"
)
@click.option("--bench", is_flag=True, help="time the kernels on this machine")
@click.option("--playback", is_flag=True, help="run every stage that computes, and show the first that differs")
@click.option("--tune", type=click.Path(), metavar="LEDGER", help="show the searches for MODEL that a ledger has")
@click.option("--serve", is_flag=True, help="serve the page on 127.0.0.1, with plans and documents to edit, and write nothing")
@click.option("--port", type=click.IntRange(1, 65535), help="port to serve at; default: a free one")
def explore(request: Request, **options: object) -> None:
    """Write one HTML file that shows every stage of MODEL side by side, its kernels, graph, memory, times and decisions. A line of
    C leads back to the model's node, and the node to its line of C. The page needs no network and no server."""
    import msgspec

    from tatami.cli.explore_command import Exploring, explore_command

    explore_command(request, msgspec.convert(options, Exploring))


@main.command(short_help="measure this machine anew")
@click.option("-o", "output", type=click.Path(), metavar="FILE.json", help="write the target document: --target FILE.json")
@refusing
def calibrate(output: str | None) -> None:
    """Measure the rates of this CPU that plans of target cpu are made by, and keep them in the cache. The first compilation
    does so by itself; do it again where the machine was busy then."""
    from tatami.cli.run_commands import calibrate_command

    calibrate_command(output)


@main.command(short_help="say what is wrong with a model")
@click.argument("models", nargs=-1, required=True)
@click.option("--trust", is_flag=True, help="accept documents that carry code")
@click.option("--json", "as_json", is_flag=True, help="print the faults as a JSON list of diagnostics, and nothing else")
@refusing
def check(models: tuple[str, ...], trust: bool, as_json: bool) -> None:
    """Read each of MODELS and say all that is wrong with it; graphs that nothing calls are checked too. For an .onnx file
    also all that onnx.checker finds, and what an import repairs."""
    from tatami.cli.run_commands import check_command, check_json_command

    if as_json:
        check_json_command(models, trust)
    else:
        check_command(models, trust)


@main.command(short_help="lay out .harp texts")
@click.argument("files", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="write nothing; exit code 1 when a text is not laid out")
@click.option("-o", "--output", type=click.Path(), help="write here instead of in place; - is standard output")
@refusing
def fmt(files: tuple[str, ...], check: bool, output: str | None) -> None:
    """Lay out each of FILES in place; comments stay. - reads standard input."""
    from tatami.cli.harp_commands import fmt_command

    fmt_command(files, check, output)


@main.command(short_help="write a model as a .harp text")
@click.argument("model")
@click.option(
    "-o", "--output", type=click.Path(), help="the .harp file, with its .npz in the same folder; - is standard output"
)
@click.option("--trust", is_flag=True, help="accept documents that carry code")
@refusing
def decompile(model: str, output: str | None, trust: bool) -> None:
    """Write MODEL as a .harp text, large constants in an .npz next to it."""
    from tatami.cli.harp_commands import decompile_command

    decompile_command(model, output, trust)


@main.command(short_help="write a model with its derivatives")
@click.argument("model")
@click.option("--of", metavar="OUTPUT", help="the output to differentiate, the sum of its elements; needless if there is one")
@click.option("--wrt", multiple=True, required=True, metavar="NAME", help="an input or a constant (repeatable)")
@click.option("-o", "--output", type=click.Path(), help="FILE.harp, with its .npz next to it, or FILE.json; - prints the text")
@click.option("--trust", is_flag=True, help="accept documents that carry code")
@refusing
def gradient(model: str, of: str | None, wrt: tuple[str, ...], output: str | None, trust: bool) -> None:
    """Write MODEL with one more output for each NAME: the derivative of OUTPUT by it, called NAME.gradient in documents."""
    from tatami.cli.harp_commands import gradient_command

    gradient_command(model, of, wrt, output, trust)


@main.command(short_help="write an ONNX model with weights of 4 or 8 bits")
@click.argument("model")
@click.option("-o", "--output", required=True, type=click.Path(), help="the .onnx file to write")
@click.option(
    "--mode",
    type=click.Choice(["int4", "int8", "dynamic", "static"]),
    help="int4, int8: weights alone; dynamic, static: activations of 8 bits too. Default: int8, with --calibration static",
)
@click.option(
    "--calibration",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="a sample: .npz of inputs by name, or .npy (repeatable)",
)
@click.option("--block", type=int, help="weights that share a scale; 0: a column; default: 32, for activations of 8 bits 0")
@click.option("--form", type=click.Choice(["qdq", "MatMulNBits"]), help="standard operators (default), or ONNX Runtime's own")
@click.option("--accuracy-level", type=click.IntRange(0, 4), help="attribute of MatMulNBits; 4 permits 8-bit activations")
@click.option("--ranges", type=click.Choice(["minmax", "percentile", "entropy"]), help="range of static activations")
@click.option("--percentile", type=float, help="percentage of values within the range; default: 99.99")
@click.option("--exclude", multiple=True, metavar="LAYER", help="a layer that stays as it is (repeatable)")
@click.option("--sensitivity", is_flag=True, help="compute what each layer alone costs, against the float64 reference")
@refusing
def quantize(model: str, **options: object) -> None:
    """Write MODEL, an .onnx file, with weights of 4 or 8 bits, and print its layers."""
    from tatami.cli.quantize_command import quantize_command

    quantize_command(model, options)


@main.command(short_help="text after a prompt")
@click.argument("model")
@click.option("-p", "--prompt", help="the text to go on from; - or nothing: standard input")
@click.option("-n", "most", default=64, show_default=True, help="most tokens to generate")
@click.option("--chat", is_flag=True, help="the prompt is what a user says; the model's template surrounds it")
@click.option("--temperature", default=0.0, show_default=True, help="0: the most likely token each time")
@click.option("--top-k", default=0, help="draw from this many most likely tokens; 0: all")
@click.option("--top-p", default=1.0, help="draw from the most likely tokens that have this probability together")
@click.option("--min-p", default=0.0, help="draw from tokens at least this probable, relative to the most likely")
@click.option("--repetition-penalty", default=1.0, help="above 1: tokens that occurred are less likely")
@click.option("--seed", type=int, help="repeat the draws of this seed")
@click.option("--stop", "stops", multiple=True, metavar="TEXT", help="end before this text")
@click.option("--context", type=int, help="most tokens of prompt and answer; default: the model's, at most 4096")
@click.option(
    "--precision", type=click.Choice(["fp32", "int8"]), help="int8: round what weights of 4 and 8 bits are multiplied with"
)
@click.option("--threads", type=int, help="default: TATAMI_NUM_THREADS, else all cores")
@refusing
def generate(model: str, **options: object) -> None:
    """Write the text that MODEL, a .gguf file, puts after a prompt."""
    from tatami.cli.generate_command import generate_command

    generate_command(model, options)


@main.command(short_help="an OpenAI-compatible server of a language model")
@click.argument("model")
@click.option("--host", default="127.0.0.1", show_default=True, help="another than this machine's needs TATAMI_API_KEY")
@click.option("--port", default=8080, show_default=True)
@click.option("--slots", default=4, show_default=True, help="sequences that are computed together")
@click.option("--context", type=int, help="most tokens of prompt and answer; default: the model's, at most 4096")
@click.option(
    "--precision", type=click.Choice(["fp32", "int8"]), help="int8: round what weights of 4 and 8 bits are multiplied with"
)
@click.option("--queue", "places", default=64, show_default=True, help="sequences that may wait; more are refused (429)")
@click.option("--threads", type=int, help="default: TATAMI_NUM_THREADS, else all cores")
@refusing
def serve(model: str, **options: object) -> None:
    """Serve MODEL, a .gguf file, until interrupted: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics."""
    from tatami.cli.serve_command import serve_command

    serve_command(model, options)


@main.command(short_help="the JSON schema of a stage")
@click.argument("stage")
def schema(stage: str) -> None:
    """Print the JSON schema of the documents of STAGE."""
    from tatami.core.codec import dump_text
    from tatami.core.codec import schema as schema_of
    from tatami.core.diagnostic import TatamiError
    from tatami.stages import body_type
    from tatami.stages import stage as find

    try:
        click.echo(dump_text(schema_of(body_type(find(stage)))), nl=False)
    except TatamiError as error:
        show_diagnostics(error.diagnostics)
        sys.exit(1)


if __name__ == "__main__":
    main()
