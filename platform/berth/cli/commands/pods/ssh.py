"""The `berth ssh` command, which connects SSH clients to pods."""

import asyncio
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import open_client, workload_names
from berth.cli.ssh.hosts import SUFFIX, Target, format_host, parse_host
from berth.cli.ssh.settings import SshFiles, include_in_user_config


def ssh(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="Name, PROJECT/NAME or ID of the workload.",
            autocompletion=workload_names,
            show_default=False,
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGUMENTS",
            help="Options for ssh and the command to run, after --. Defaults to a shell.",
            show_default=False,
        ),
    ] = None,
    pod: Annotated[str | None, typer.Option(help="Pod, as ROLE-INDEX. Defaults to the first pod.")] = None,
    config: Annotated[
        bool,
        typer.Option("--config", help="Add NAME.PROJECT.berth hosts to ~/.ssh/config for all SSH clients."),
    ] = False,
    stdio: Annotated[
        bool,
        typer.Option(
            "--stdio", help="Serve SSH on standard input and output, for use as ssh's ProxyCommand."
        ),
    ] = False,
) -> None:
    """Open an SSH session in a pod of a running workload, with this machine's ssh client.

    \b
    berth ssh train
    berth ssh train -- nvidia-smi
    berth ssh train --pod worker-3 -- -L 8888:localhost:8888
    berth ssh --config      then: ssh, scp, sftp and rsync with train.vision.berth

    Sessions have the user, limits, variables and working directory of the pod, which needs no SSH server and
    no key. All processes that they started end when the connection closes or the pod ends. You need
    permission to control the workload. The exit code is that of ssh.
    """
    if find_spec("asyncssh") is None:
        raise ModuleNotFoundError(name="asyncssh")
    files = _stored_ssh_files()
    if config:
        _configure_ssh(files)
    if workload is None:
        if config:
            return
        raise typer.BadParameter("Specify a workload, or use --config.")
    target = parse_host(workload) if workload.endswith(SUFFIX) else Target(workload, None)
    target = target._replace(pod=pod or target.pod)
    if stdio:
        _serve(target, files)
    else:
        _connect(target, files, arguments or [])


def _stored_ssh_files() -> SshFiles:
    from berth.client.config import settings_path

    return SshFiles(settings_path().absolute().parent / "ssh")


def _configure_ssh(files: SshFiles) -> None:
    files.write_config()
    user_config = Path.home() / ".ssh" / "config"
    if include_in_user_config(files.config, user_config):
        print(f"Included {files.config} in {user_config}.")
    print("Connect to pods with: ssh NAME.PROJECT.berth")


def _serve(target: Target, files: SshFiles) -> None:
    from berth.cli.ssh.server import serve
    from berth.cli.ssh.sessions import PodChannels
    from berth.client.config import load_settings

    files.prepare()
    with open_client() as client:
        selected = client.workloads.find(target.workload)
    asyncio.run(serve(PodChannels(load_settings(), selected.id, target.pod), files))


def _connect(target: Target, files: SshFiles, arguments: list[str]) -> None:
    files.prepare()
    if "/" not in target.workload:
        with open_client() as client:
            selected = client.workloads.find(target.workload)
        if selected.id != target.workload:
            target = Target(selected.handle, target.pod)
    host = format_host(target)
    options = [part for key, value in files.options().items() for part in ("-o", f"{key}={value}")]
    try:
        os.execvp("ssh", ["ssh", *options, host, *arguments])
    except FileNotFoundError:
        raise InvalidInput("`ssh` is not installed on this machine. Install the OpenSSH client.") from None
