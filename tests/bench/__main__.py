"""Run every benchmark and print one table: `python -m tests.bench`."""

from tests.bench import drawing, startup


def main() -> None:
    print(f"{'what':<36}{'against':<30}{'ratio':>8}{'to reach':>10}")
    for row in (*startup.rows(), *drawing.rows()):
        name, against, ratio, limit = row
        verdict = "" if ratio <= limit else "  missed"
        print(f"{name:<36}{against:<30}{ratio:>8.3f}{limit:>10.3f}{verdict}")


main()
